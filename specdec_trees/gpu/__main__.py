"""Everything that a machine with a GPU is asked for, in minutes: tests, speeds, and every method on one planted pair.

    python -m specdec_trees.gpu                        # or: make bench-gpu
    python -m specdec_trees.gpu --pair planted/small   # on a CPU

Writes parquet, `gpu.json` and `gpu.md` into one folder. The JSON is written anew after every part, so that a run that
is stopped leaves what it has found; parts that the time does not reach are named in it, as are those that failed.
"""

import argparse
import faulthandler
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from specdec_core.models import Pair
from specdec_core.models.placement import resolve_device, resolve_dtype
from specdec_trees.artifacts.tables import to_markdown
from specdec_trees.gpu import checks, summary
from specdec_trees.gpu.cells import (
    EXPERIMENT,
    METHODS,
    VARIANTS,
    OutOfTimeError,
    Request,
    forward_medians,
    limited,
    run_method,
    spec_and_runtime,
)
from specdec_trees.measure import pairs
from specdec_trees.measure.bandwidth import copy_bytes_per_s
from specdec_trees.measure.provenance import collect
from specdec_trees.results.parquet import hidden_name
from specdec_trees.results.store import Store
from specdec_trees.run import check_choices

RESERVE_S = 10.0
"""For what follows the last cell."""
TESTS_SHARE = 0.4
"""Of all the time, for the GPU tests at most."""
HANG_S = 60.0
"""So long behind its time a process that hears nothing is ended, and says where it hung."""


class Session:
    """One run: what it has found so far, and how long it may go on."""

    def __init__(self, request: Request, minutes: float) -> None:
        self.request, self.limit_s, self.start = request, 60 * minutes, time.monotonic()
        self.spec, self.runtime = spec_and_runtime(request)
        self.store = Store(request.out, EXPERIMENT)
        self.run_ids: list[str] = []
        self.pair: Pair | None = None
        self.report: dict[str, Any] = {
            "complete": False,
            "pair": {
                "name": self.spec.name,
                "synthetic": self.spec.planted is not None,
                "planted": asdict(self.spec.planted) if self.spec.planted else None,
                "target_id": self.spec.target.id,
                "draft_id": self.spec.draft.id if self.spec.draft else None,
            },
        }
        self.report |= {"methods": [], "left_out": [], "errors": [], "seconds": {}}
        self.write()

    @property
    def left_s(self) -> float:
        """Seconds that parts may still take."""
        return self.limit_s - RESERVE_S - (time.monotonic() - self.start)

    def part(self, name: str, body: Callable[[], None]) -> None:
        """One part: timed, stopped when time is up, and if it fails, a line in the report and nothing more."""
        start, problem = time.monotonic(), ""
        try:
            with limited(self.left_s):
                body()
        except (Exception, OutOfTimeError) as error:
            problem = f"{type(error).__name__}: {error}"
            self.report["errors"].append({"part": name, "error": problem})
        seconds = time.monotonic() - start
        self.report["seconds"][name] = round(seconds, 1)
        print(f"[{time.monotonic() - self.start:6.1f} s] {name}: {problem or f'{seconds:.1f} s'}", flush=True)
        self.write()

    def write(self) -> None:
        """The JSON and the table, each in one stroke."""
        self.report["seconds"]["total"] = round(time.monotonic() - self.start, 1)
        self._whole("gpu.json", json.dumps(self.report, indent=1))
        self._whole("gpu.md", to_markdown(summary.table(self.report)))

    def _whole(self, name: str, text: str) -> None:
        self.request.out.mkdir(parents=True, exist_ok=True)
        part = self.request.out / hidden_name(name)
        part.write_text(text, encoding="utf-8")
        part.replace(self.request.out / name)

    def prepare(self) -> None:
        """The device and its speed of copying, while its memory is empty; the pair and its forward times."""
        self.part("copy", self._copy)
        self.part("pair", self._load)
        if self.pair is not None:
            self.part("forward times", self._forward_times)

    def _copy(self) -> None:
        device = torch.device(resolve_device(self.runtime.device))
        kind = str(resolve_dtype(self.runtime.dtype, device)).removeprefix("torch.")
        self.report["device"] = collect(str(device), kind, self.runtime.attention)
        self.report["copy"] = {"bytes_per_s": copy_bytes_per_s(device)}

    def _load(self) -> None:
        self.pair = pairs.loaded(self.spec, self.runtime)

    def _forward_times(self) -> None:
        self.report["forward_ms"] = forward_medians(self.request)

    def tests(self) -> None:
        """The GPU tests, for a part of the time at most."""
        self.report["tests"] = checks.run_tests(min(TESTS_SHARE * self.limit_s, self.left_s))

    def methods(self) -> None:
        """All methods, until the next one is likely to take longer than there is time."""
        longest = 0.0
        there = self.pair is not None
        on_gpu = resolve_device(self.runtime.device) != "cpu"
        variants = [variant for variant in VARIANTS if on_gpu or "graphs" not in variant[-1]]
        for drafter, decoding, how in [*((*method, "") for method in METHODS), *variants]:
            name = ", ".join(filter(None, (drafter, decoding, how)))
            if not there or self.left_s < 1.1 * longest:
                reason = "out of time" if there else "there is no pair"
                self.report["left_out"].append({"what": name, "reason": reason})
                continue
            if how:
                self.pair = None  # the variant loads another, and there may not be room for both
            start = time.monotonic()
            self.part(name, partial(self._method, drafter, decoding, how))
            longest = max(longest, time.monotonic() - start)
        self.write()

    def _method(self, drafter: str, decoding: str, how: str) -> None:
        run_id = run_method(self.request, drafter, decoding, how, self.store)
        self.run_ids += [run_id] if not how else []
        row = summary.method_row(self.store, run_id) | {"how": how}
        self.report["methods"].append(row)
        copy = (self.report.get("copy") or {}).get("bytes_per_s")
        if self.pair is not None:
            self.report["autoregressive"] = summary.autoregressive(self.store, self.run_ids, self.pair, copy)
        if row["status"] != "ok":
            raise OutOfTimeError(row["error"]) if self.left_s <= 0 else RuntimeError(row["error"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all parts; 0, or 1 if a test, a method or another part failed."""
    options = _parser().parse_args(arguments)
    check_choices([f"pair={options.pair}"])
    request = Request(options.pair, options.out, options.conversations, options.new_tokens, options.repeats)
    session = Session(request, options.minutes)
    faulthandler.dump_traceback_later(session.limit_s + HANG_S, exit=True, file=sys.__stderr__ or 2)
    try:
        if options.tests:
            session.part("tests", session.tests)
        session.prepare()
        session.methods()
    finally:
        faulthandler.cancel_dump_traceback_later()
    session.report["complete"] = not (session.report["left_out"] or session.report["errors"])
    session.write()
    print(to_markdown(summary.table(session.report)))
    print(options.out / "gpu.json")
    return int(bool(session.report["errors"] or (session.report.get("tests") or {}).get("exit_status")))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pair", default="planted/llama2_7b_jf68m", help="of conf/pair (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("results/gpu"), help="folder (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=8.0, help="for everything (default: %(default)s)")
    parser.add_argument("--conversations", type=int, default=3, help="bundled ones (default: %(default)s)")
    parser.add_argument("--new-tokens", type=int, default=128, help="of every turn (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=30, help="of every timed forward (default: %(default)s)")
    parser.add_argument("--no-tests", dest="tests", action="store_false", help="leave the GPU tests out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
