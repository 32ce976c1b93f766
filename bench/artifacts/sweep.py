"""Lines of runs that differ in one parameter alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.artifacts.blocks import Block
from bench.artifacts.definitions import method_label
from bench.artifacts.runs import Run
from bench.results.rows import AUTOREGRESSIVE


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
    lines: dict[str, list[tuple[float, Run]]] = {}
    for run in block.ok:
        value = x(run) if x else run.params.get(swept)
        if run.method != AUTOREGRESSIVE and value is not None:
            rest = {"method": run.method} | {key: value for key, value in run.params.items() if key != swept}
            lines.setdefault(json.dumps(rest, sort_keys=True), []).append((float(value), run))
    rests = [json.loads(key) for key in lines]
    differ = _differing(rests)
    return [_series(rest, line, differ) for rest, line in zip(rests, lines.values(), strict=True)]


def _differing(rests: list[dict[str, object]]) -> list[str]:
    """The parameters in which the lines of one method are not alike."""
    keys = dict.fromkeys(key for rest in rests for key in rest if key != "method")
    same = [(a, b) for a in rests for b in rests if a["method"] == b["method"]]
    return [key for key in keys if any(a.get(key) != b.get(key) for a, b in same)]


def _series(rest: dict[str, object], line: list[tuple[float, Run]], differ: list[str]) -> Series:
    line.sort(key=lambda point: point[0])
    words = [
        method_label(str(rest["method"])),
        *(_argument(key, rest[key]) for key in differ if rest.get(key) not in (None, False)),
    ]
    return Series(", ".join(words), [value for value, _ in line], [run for _, run in line])


def _argument(name: str, value: object) -> str:
    """A parameter as a label can hold it: a switch by its name, of a list, such as an acceptance vector, its start."""
    if value is True:
        return name.replace("_", " ")
    if not isinstance(value, list):
        return f"{name}={value}"
    return f"{name}=[{', '.join(f'{item:.3g}' for item in value[:3])}{', …' if len(value) > 3 else ''}]"
