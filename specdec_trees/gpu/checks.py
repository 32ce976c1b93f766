"""What `specdec_trees.gpu` learns of a device before it decodes there: whether the GPU tests pass."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
SELECTION = ("-m", "gpu", "tests")
GRACE_S = 15.0
"""How long interrupted tests may take to write down what they found."""


def run_tests(limit_s: float, selection: Sequence[str] = SELECTION, folder: Path = ROOT) -> dict[str, Any]:
    """Counts of the tests and names of those that failed, from a process of its own that is stopped at the limit."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="specdec-") as scratch:
        report, log = Path(scratch) / "tests.xml", Path(scratch) / "log"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *selection]
        with log.open("w") as file:
            process = subprocess.Popen(command, cwd=folder, stdout=file, stderr=file, start_new_session=True)
            stopped = _wait(process, limit_s)
        found = _counts(report) | {"exit_status": process.returncode, "stopped_at_limit": stopped}
        if process.returncode:
            found["last_lines"] = log.read_text(errors="replace").splitlines()[-15:]
    return found | {"seconds": round(time.monotonic() - start, 1)}


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Whether it had to be stopped: first as by Ctrl-C, which lets pytest report, then for good."""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return True
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return False


def _counts(report: Path) -> dict[str, Any]:
    """Of pytest's report in JUnit's form; zeros where there is none."""
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []
    kinds = [{child.tag for child in case} for case in cases]
    failing = [case for case, tags in zip(cases, kinds, strict=True) if tags & {"failure", "error"}]
    skipped = sum("skipped" in tags for tags in kinds)
    return {
        "passed": len(cases) - len(failing) - skipped,
        "failed": len(failing),
        "skipped": skipped,
        "failing": [f"{case.get('classname')}::{case.get('name')}" for case in failing],
    }
