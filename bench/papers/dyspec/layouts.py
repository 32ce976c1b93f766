"""DySpec, Tables 1 to 4: their titles, columns, and what their paper leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pandas as pd

from bench import published
from bench.artifacts.blocks import Block
from bench.artifacts.runs import Run
from bench.artifacts.speedups.arms import Arm
from bench.artifacts.speedups.layout import Layout

PAPER = "dyspec"
_ACCEPTED = (
    "The paper's accepted tokens per step count the token that the target adds (its list of accepted tokens holds it), "
    "so that they stand beside MAL; MAL - 1 is in the details."
)
_SAMPLES = (
    "The paper decodes 1000 examples of each dataset from their first 128 tokens (MT-Bench has 80 conversations); here "
    "a dataset has at most 200, and prompts of chats are whole and may have a second turn."
)
_OTHERS = (
    "Where ours is another than the paper's, the paper's numbers and the verdicts are left out; where those of two "
    "methods differ, neither is called ahead."
)


def _small(arms: Sequence[Arm], paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """Tables 1 to 3."""
    yield from _budgets(arms, found)
    yield "The paper does not say whether its 64 count the root; the blocks of its Figure 9 fit trees that do."
    yield _SAMPLES
    yield _ACCEPTED
    yield "The paper's caption says latency; what it prints are speedups. Seconds per token are in the details."
    ours = dict.fromkeys(words for _, run in _runs(arms[-1], found) if (words := _shape(run)))
    here = f"SpecInfer's tree here: {' / '.join(ours)}. " if ours else ""
    yield f"{here}The paper does not state the shape of SpecInfer's tree."
    yield from _temperatures(arms, found)


def _large(arms: Sequence[Arm], paper: pd.DataFrame, found: Sequence[Block]) -> Iterator[str]:
    """Table 4."""
    yield from _budgets(arms, found)
    yield _SAMPLES
    yield (
        "DySpec grows layer by layer down to a threshold here, as in the paper, and may leave part of its budget "
        "unused: n mean is in the details."
    )
    if limits := {_limits(run) for _, run in _runs(arms[0], found)}:
        yield f"DySpec's threshold and cap here: {'; '.join(sorted(limits))}. The paper's text: 0.001 and 768."
    yield _ACCEPTED
    yield (
        "Published: DySpec, Sequoia and plain decoding are the paper's own runs; SpecInfer's numbers are copied from "
        "Sequoia's Table 5, on an L40. The paper prints no speedups: those that stand here are its plain s/token "
        "over the method's, left out for SpecInfer, whose device is another."
    )
    yield from _temperatures(arms, found)


def _runs(arm: Arm, found: Sequence[Block]) -> list[tuple[Block, Run]]:
    return [(block, run) for block in found if (run := arm.chosen(block)) is not None]


def _budgets(arms: Sequence[Arm], found: Sequence[Block]) -> Iterator[str]:
    """How many nodes each method might draft, here and in the paper."""
    ours = [{size for block, run in _runs(arm, found) if (size := run.budget)} for arm in arms]
    here = [
        f"{arm.header} {' / '.join(map(str, sorted(sizes))) or 'not run'}"
        for arm, sizes in zip(arms, ours, strict=True)
    ]
    text = f"Budget in drafted nodes, the root (which N counts) aside: {', '.join(here)}; the paper: {arms[0].budget}."
    yield f"{text} {_OTHERS}" if set().union(*ours) - {arms[0].budget} else text


def _temperatures(arms: Sequence[Arm], found: Sequence[Block]) -> Iterator[str]:
    """At what temperature each method drew its children, here and in the paper."""
    here = [f"{arm.header}: {words}" for arm in arms if (words := _draws([run for _, run in _runs(arm, found)]))]
    facts = published.find(PAPER, "setup_text", metric="draft_temperature")
    paper = f"The paper's draft temperature is {facts['value'].iloc[0]:g} at every temperature of the target"
    ours = f"Draft temperature here: {'; '.join(here)}. " if here else ""
    yield f"{ours}{paper}; whether for Sequoia and SpecInfer too, it does not state."
    if "best tokens" in ours:
        yield "In a tree of fixed shape the draft's best tokens are the same at every draft temperature."


def _draws(runs: Sequence[Run]) -> str:
    """The draft temperatures of runs and what was drawn with them, by the temperature of the target."""
    targets: dict[str, list[str]] = {}
    for run in runs:
        value = run.params.get("draft_temperature")
        words = "not recorded" if value is None else f"{value:g}"
        words += ", the draft's best tokens" if run["draws"] == "topk" else ", children drawn"
        targets.setdefault(words, []).append(f"{run['temperature']:g}")
    return " / ".join(
        f"{words} (target's temperature {' and '.join(dict.fromkeys(given))})" for words, given in targets.items()
    )


def _shape(run: Run) -> str:
    shape = run.params.get("shape")
    if not isinstance(shape, dict) or not {"num_sequences", "depth"} <= shape.keys():
        return ""
    return f"{shape['num_sequences']} sequences of {shape['depth']} tokens"


def _limits(run: Run) -> str:
    params = run.params
    threshold = params.get("threshold")
    return f"{'1/n' if threshold is None else f'{threshold:g}'} and {params.get('n')}"


def _layout(title: str, shape: str = "8x8", drafter: str = "dyspec", *, in_seconds: bool = False) -> Layout:
    size = 768 if in_seconds else 64
    arms = (
        Arm("DySpec", (drafter,), "dyspec", budget=size),
        Arm("Sequoia", ("sized_sequoia", "sequoia"), "sequoia", budget=size),
        Arm("SpecInfer", (f"spec_infer_{shape}",), "specinfer", budget=size),
    )
    return Layout(
        PAPER,
        title,
        arms,
        tree=False,
        plain=True,
        against=True,
        growing=True,
        in_seconds=in_seconds,
        remarks=partial(_large if in_seconds else _small, arms),
    )


LAYOUTS: Mapping[str, Layout] = {
    "table1": _layout("DySpec Table 1: speedup and accepted tokens (the paper: 64 nodes, A100)"),
    "table2": _layout("DySpec Table 2: speedup and accepted tokens (the paper: 64 nodes, A100)"),
    "table3": _layout("DySpec Table 3: offloaded target (the paper: 64 nodes, A100)"),
    "table4": _layout(
        "DySpec Table 4: offloaded target, DySpec with a threshold (the paper: at most 768 nodes, A100)",
        "16x48",
        "dyspec_threshold",
        in_seconds=True,
    ),
}
