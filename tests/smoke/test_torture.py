"""Sweeps under torture, a few blows of `make torture`: nothing is lost, doubled or unreadable; the status is right."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_nothing_is_lost(long_form):
    command = [sys.executable, str(ROOT / "tests" / "torture.py"), "--kills", "100" if long_form else "8"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ kills in \d+ s", done.stdout, flags=re.MULTILINE)
    assert "0 lost, 0 doubled, 0 unreadable, 0 wrong status" in done.stdout
