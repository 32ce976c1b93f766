"""The lines of a sweep: runs of a block that differ in one swept parameter alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.artifacts.blocks import Block
from bench.artifacts.definitions import method_label
from bench.artifacts.runs import Run


@dataclass(frozen=True, slots=True)
class Series:
    """Runs in the order of their `x`, and the words that tell this line from the others of its panel."""

    label: str
    x: list[float]
    runs: list[Run]

    @property
    def points(self) -> Iterator[tuple[float, Run]]:
        """Each x with its run."""
        return zip(self.x, self.runs, strict=True)


def series(block: Block, swept: str, x: Callable[[Run], float | None] | None = None) -> list[Series]:
    """The lines of a block along `swept`, a parameter of the drafter unless `x` reads it elsewhere.

    Autoregressive runs are left out: every run has its own baseline.
    """

    def read(run: Run) -> float | None:
        return x(run) if x else run.params.get(swept)

    drafted = [run for run in block.ok if run.method != "autoregressive"]
    points = [(value, run) for run in drafted if (value := read(run)) is not None]
    lines: dict[str, list[tuple[float, Run]]] = {}
    for value, run in points:
        lines.setdefault(json.dumps(_rest(run, swept), sort_keys=True), []).append((float(value), run))
    differ = _differing([json.loads(key) for key in lines])
    return [_series(json.loads(key), line, differ) for key, line in lines.items()]


def _rest(run: Run, swept: str) -> dict[str, object]:
    return {"method": run.method} | {key: value for key, value in run.params.items() if key != swept}


def _differing(rests: list[dict[str, object]]) -> list[str]:
    """The parameters in which the lines of one method are not alike."""
    keys = dict.fromkeys(key for rest in rests for key in rest if key != "method")
    same = [(a, b) for a in rests for b in rests if a["method"] == b["method"]]
    return [key for key in keys if any(a.get(key) != b.get(key) for a, b in same)]


def _series(rest: dict[str, object], line: list[tuple[float, Run]], differ: list[str]) -> Series:
    line.sort(key=lambda point: point[0])
    words = [
        method_label(str(rest["method"])),
        *(f"{key}={_short(rest[key])}" for key in differ if rest.get(key) is not None),
    ]
    return Series(", ".join(words), [value for value, _ in line], [run for _, run in line])


def _short(value: object) -> str:
    """A parameter as a label can hold it: of a list, such as an acceptance vector, the first numbers."""
    if not isinstance(value, list):
        return str(value)
    return f"[{', '.join(f'{item:.3g}' for item in value[:3])}{', …' if len(value) > 3 else ''}]"
