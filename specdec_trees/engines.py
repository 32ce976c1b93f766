"""`python -m specdec_trees.engines RESULTS --as vllm`: acceptance of runs under the names that serving engines use.

RESULTS is a folder of results, or of an experiment. Out comes JSON, an object for each run: acceptance by position and
by depth and rank, and below the engine's name what it counts, under its own names.
With `--beside FILE` a record of an engine is set beside one run: a response of vLLM, its log or its `/metrics`, what
`--as` wrote, AIPerf's records, or a response or a log of llama.cpp. Words and definitions: docs/engines.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd

from specdec_trees.artifacts import markdown
from specdec_trees.results import store
from specdec_trees.results.parquet import replace_text
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, OK
from specdec_trees.results.store import StoreError
from specdec_trees.statistics import metrics, positions

ENGINES = ("vllm", "llama.cpp", "aiperf")
NAMES: Mapping[str, Mapping[str, str]] = {
    "steps": {"vllm": "num_drafts", "aiperf": "num_spec_steps"},
    "drafted": {
        "vllm": "num_draft_tokens",
        "llama.cpp": "n_drafted",
        "aiperf": "num_draft_tokens",
        "llama-server": "draft_n",
    },
    "accepted": {
        "vllm": "num_accepted_tokens",
        "llama.cpp": "n_accept",
        "aiperf": "num_accepted_draft_tokens",
        "llama-server": "draft_n_accepted",
    },
    "reached": {"vllm": "num_accepted_tokens_per_pos"},
    "counts": {"aiperf": "acceptance_histogram"},
    "depth": {"vllm": "num_spec_tokens", "aiperf": "num_spec_tokens"},
    "length": {
        "vllm": "mean_acceptance_length",
        "llama.cpp": "mean acceptance length",
        "aiperf": "mean_acceptance_length",
    },
    "rate": {
        "vllm": "draft_acceptance_rate",
        "llama.cpp": "draft acceptance rate",
        "aiperf": "draft_acceptance_rate",
    },
    "joint": {"llama.cpp": "acceptance rate per position"},
}
"""What each engine calls a quantity: all are written, the first five are read. vLLM's responses have AIPerf's names."""
_STEPS = ("run_id", "prompt_id", "turn", "num_drafted", "depth", "num_accepted", "acceptance_length", "accepted_ranks")
_NODES = ("run_id", "prompt_id", "turn", "depth", "rank", "parent_accepted")


class EngineError(Exception):
    """Nothing can be written or compared; the message is a sentence."""


@dataclass(frozen=True, slots=True)
class Record:
    """What an engine counts of some text: `reached[i - 1]` steps accepted at least i drafted tokens.

    Steps without a draft are not counted. `steps` and `reached` are None where they are not told.
    """

    drafted: float
    accepted: float
    steps: float | None = None
    reached: tuple[float, ...] | None = None

    def __add__(self, other: Record) -> Record:
        steps = None if self.steps is None or other.steps is None else self.steps + other.steps
        both = None
        if self.reached is not None and other.reached is not None:
            both = tuple(a + b for a, b in zip_longest(self.reached, other.reached, fillvalue=0))
        return Record(self.drafted + other.drafted, self.accepted + other.accepted, steps, both)

    @property
    def length(self) -> float | None:
        """Mean acceptance length as engines have it: 1 + accepted / steps."""
        return 1 + self.accepted / self.steps if self.steps else None

    @property
    def rate(self) -> float | None:
        """Draft acceptance rate: accepted / drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def joint(self) -> list[float]:
        """P(at least i accepted); empty where it is not told."""
        return positions.joint(self.reached or (), self.steps or 0)

    @property
    def conditional(self) -> list[float]:
        """P(at least i accepted | at least i - 1); empty where it is not told."""
        return positions.conditional(self.reached or (), self.steps or 0)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that drafted, of one experiment, with the turns of its method, their steps and the recorded nodes."""

    experiment: str
    row: pd.Series
    prompts: pd.DataFrame
    steps: pd.DataFrame
    nodes: pd.DataFrame

    @property
    def record(self) -> Record:
        """What an engine would have counted."""
        return _record(self.steps)

    @property
    def virtual(self) -> bool:
        """Whether trees begin at the target's own distribution, so that a step has no token beside the path."""
        return str(self.row["draws"]).startswith("target")


def runs_of(folder: Path, start: str = "") -> Iterator[Run]:
    """The runs of a folder that ended well and drafted, whose id begins so; each once, of its first experiment."""
    root, name = store.located(folder)
    seen: set[str] = set()
    for one in store.experiments(root, "runs"):
        if not f"{one.experiment}/".startswith(f"{name}/" if name else ""):
            continue
        results = store.load(root, one.experiment, only={"steps": _STEPS, "nodes": _NODES})
        tables = [dict(list(rows.groupby("run_id"))) for rows in (results.prompts, results.steps, results.nodes)]
        for _, row in results.runs[results.runs["status"] == OK].iterrows():
            key = str(row["run_id"])
            if key in seen or row["method"] == AUTOREGRESSIVE or not key.startswith(start) or key not in tables[1]:
                continue
            seen.add(key)
            prompts, steps, nodes = (rows.get(key, results.nodes[:0]) for rows in tables)
            yield Run(one.experiment, row, prompts[prompts["arm"] == METHOD], steps, nodes)


def exported(run: Run, engine: str) -> dict[str, Any]:
    """The object of a run: its labels, acceptance by position and by depth and rank, and the engine's own record.

    A virtual root has no record: its steps begin with a token that the target drew.
    """
    labels = {name: run.row[name] for name in ("run_id", "pair", "dataset", "drafter", "verifier")}
    record, ranks, tested = run.record, positions.accepted_by_rank(run.steps), positions.tested_by_rank(run.nodes)
    by_rank = {"accepted": ranks, "tested": tested}
    found = {
        **labels,
        "experiment": run.experiment,
        "temperature": float(run.row["temperature"]),
        "mal": metrics.mal(run.steps),
        "by_position": {"joint": record.joint, "conditional": record.conditional},
        "by_depth_and_rank": {name: None if counts is None else counts.tolist() for name, counts in by_rank.items()},
    }
    if run.virtual:
        return found | {engine: None, "why": "trees begin at the target's own token, which no engine's count has"}
    own: Any = _named(run.steps, engine) if engine != "aiperf" else [*_requests(run)]
    return found | {engine: own}


def _record(steps: pd.DataFrame) -> Record:
    rows = positions.drafting(steps)
    reached = positions.reached(positions.histogram(steps))
    return Record(int(rows["num_drafted"].sum()), int(rows["num_accepted"].sum()), len(rows), tuple(reached))


def _named(steps: pd.DataFrame, engine: str) -> dict[str, Any]:
    """What an engine counts of these steps, under its names."""
    record, counts = _record(steps), positions.histogram(steps)
    known = {name: getattr(record, name) for name in ("steps", "drafted", "accepted", "reached", "length", "rate")}
    known |= {"joint": record.joint, "depth": len(counts) - 1}
    known |= {"counts": {str(accepted): count for accepted, count in enumerate(counts) if count}}
    return {names[engine]: known[name] for name, names in NAMES.items() if engine in names}


def _requests(run: Run) -> Iterator[dict[str, Any]]:
    """AIPerf's record of each turn, which it calls a request."""
    of_turn = dict(list(run.steps.groupby(["prompt_id", "turn"])))
    turns = zip(*(run.prompts[name] for name in ("prompt_id", "turn", "num_new_tokens")), strict=True)
    for prompt, turn, tokens in turns:
        labels = {"engine": "specdec-trees", "prompt_id": prompt, "turn": int(turn), "completion_tokens": int(tokens)}
        if (prompt, turn) in of_turn:
            yield labels | _named(of_turn[prompt, turn], "aiperf")


def read(text: str) -> Record:
    """The record in a file of an engine, all that it counts added up; EngineError where there is none."""
    try:
        found = [*_of_json(text)] or [record for reader in _LOGS for record in reader(text)]
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise EngineError(f"the record has counts that are no numbers: {error}") from error
    if not found:
        raise EngineError("no record of speculative decoding: neither JSON nor a log that docs/engines.md lists")
    total = found[0]
    for record in found[1:]:
        total += record
    return total


def _of_json(text: str) -> Iterator[Record]:
    """Of a document, or of one in each line."""
    try:
        documents = [json.loads(text)]
    except ValueError:
        try:
            documents = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return
    for document in documents:
        yield from _inside(document)


def _inside(value: Any) -> Iterator[Record]:
    """The outermost objects that have what was drafted and what was accepted."""
    if isinstance(value, list):
        for item in value:
            yield from _inside(item)
    if not isinstance(value, dict):
        return
    held: dict[str, Any] = {}
    for name, names in NAMES.items():
        held[name] = next((value[key] for key in names.values() if key in value), None)
    if not all(isinstance(held[name], int | float) for name in ("drafted", "accepted")):
        for item in value.values():
            yield from _inside(item)
        return
    reached, steps = held["reached"], held["steps"]
    if held["counts"] is not None:
        counts = _dense(held["counts"])
        reached, steps = positions.reached(counts), sum(counts)
    elif steps is None and (held["length"] or 0) > 1:
        steps = round(held["accepted"] / (held["length"] - 1))
        reached = [share * steps for share in held["joint"] or ()] or None
    yield Record(
        float(held["drafted"]),
        float(held["accepted"]),
        None if steps is None else float(steps),
        None if reached is None else tuple(map(float, reached)),
    )


def _dense(counts: Any) -> list[int]:
    """A histogram as a list: vLLM writes one, AIPerf an object without the empty places."""
    if isinstance(counts, list):
        return counts
    known = {int(accepted): count for accepted, count in counts.items()}
    return [known.get(accepted, 0) for accepted in range(max(known, default=-1) + 1)]


def _of_rates(drafted: str, accepted: str, rates: str | None) -> Record:
    """Of a line without a number of steps: accepted tokens / the sum of the rates by position.

    Where none was accepted it is the least that there may be: drafts of all positions.
    """
    shares = [float(share) for share in (rates or "").replace(",", " ").split()]
    counts = float(drafted), float(accepted)
    if not shares:
        return Record(*counts)
    steps = counts[1] / sum(shares) if sum(shares) else counts[0] / len(shares)
    return Record(*counts, steps, tuple(share * steps for share in shares))


def _of_vllm(text: str) -> Iterator[Record]:
    """A log's lines, of the time since the line before each."""
    line = r"Accepted: (\d+) tokens, Drafted: (\d+) tokens, Per-position acceptance rate: ([\d., ]*)"
    for accepted, drafted, rates in re.findall(line, text):
        yield _of_rates(drafted, accepted, rates)


def _of_prometheus(text: str) -> Iterator[Record]:
    """What `/metrics` says, counted since the server began; engines of several ranks are added up."""
    sums: dict[tuple[str, int], float] = {}
    line = r"^(?:vllm|llamacpp):spec_decode_(num_\w+?)(?:_total)?(?:\{(.*)\})? ([\d.eE+]+)$"
    for name, labels, value in re.findall(line, text, re.MULTILINE):
        place = re.search(r'position="(\d+)"', labels)
        key = name, int(place[1]) if place else -1
        sums[key] = sums.get(key, 0.0) + float(value)
    own = {name: names["vllm"] for name, names in NAMES.items() if "vllm" in names}
    if all((own[name], -1) in sums for name in ("drafted", "accepted", "steps")):
        reached = tuple(count for (name, _), count in sorted(sums.items()) if name == own["reached"])
        drafted, accepted, steps = (sums[own[name], -1] for name in ("drafted", "accepted", "steps"))
        yield Record(drafted, accepted, steps, reached or None)


def _of_llama(text: str) -> Iterator[Record]:
    """A server's line of each request, with a mean length, positions or neither; or the end of `llama-speculative`."""
    counted = r"draft acceptance(?: rate)? = [\d.]+ \(\s*(\d+) accepted /\s*(\d+) generated\)"
    for accepted, drafted, length, rates in re.findall(
        rf"{counted}(?:, mean len =\s*([\d.]+))?(?:.*per position = \((.*)\))?", text
    ):
        if length and float(length) > 1:
            yield Record(float(drafted), float(accepted), float(accepted) / (float(length) - 1))
        else:
            yield _of_rates(drafted, accepted, rates)
    for drafted, accepted in re.findall(r"n_drafted\s*= (\d+).*\n.*n_accept\s*= (\d+)", text):
        yield Record(float(drafted), float(accepted))


_LOGS: tuple[Callable[[str], Iterator[Record]], ...] = (_of_vllm, _of_prometheus, _of_llama)


def beside(run: Run, theirs: Record) -> tuple[list[tuple[str, float, float, str]], list[str]]:
    """Rows of quantity, theirs, ours and why they may differ; then sentences on what cannot be compared."""
    ours, tree = run.record, bool((run.steps["num_drafted"] > run.steps["depth"]).any())
    trees = "ours has several children at a depth" if tree else "texts and answer lengths"
    rows: list[tuple[str, float | None, float | None, str]] = [
        ("mean acceptance length", theirs.length, ours.length, trees),
        ("draft acceptance rate", theirs.rate, ours.rate, "ours is of nodes" if tree else "lengths of drafts"),
    ]
    for words, of in (("{} or more accepted", "joint"), ("{} accepted, given {}", "conditional")):
        both = zip(getattr(theirs, of), getattr(ours, of), strict=False)
        rows += [(words.format(place, place - 1), *each, trees) for place, each in enumerate(both, 1)]
    whole = [(name, a, b, why) for name, a, b, why in rows if a is not None and b is not None]
    return whole, [*_without(theirs, ours, tree)]


def _without(theirs: Record, ours: Record, tree: bool) -> Iterator[str]:
    yield "Prompts, models, draft and temperature are taken to be the same: the record does not name them."
    if theirs.steps is None:
        yield "The record has no number of steps: mean acceptance length and positions cannot be compared."
    elif theirs.reached is None:
        yield "The record has no positions."
    elif len(theirs.reached) != len(ours.reached or ()):
        yield f"The record has {len(theirs.reached)} positions, this run {len(ours.reached or ())}."
    if tree:
        yield "A tree drafts more nodes than its path can accept: draft acceptance rates do not rank the two."
    yield "Acceptance by rank, E(A) and times cannot be compared: no engine counts the first two."


def _table(run: Run, theirs: Record) -> str:
    """The comparison as Markdown."""
    rows, notes = beside(run, theirs)
    lines = [markdown.row(("quantity", "theirs", "ours", "ours - theirs", "may differ by")), "|---|---|---|---|---|"]
    for name, a, b, why in rows:
        lines.append(markdown.row((name, f"{a:.3f}", f"{b:.3f}", f"{b - a:+.3f}", why)))
    whose = "Ours is {run_id}, {drafter} on {dataset}.".format(**run.row)
    return "\n".join([whose, "", *lines, "", *notes])


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 2 with a sentence where there is no run, no record, or nothing to compare."""
    given = _parser().parse_args(arguments)
    try:
        found = [*runs_of(given.results, given.run)]
        if not found:
            raise EngineError(f"there is no run in {given.results} that drafted and ended well")
        text = json.dumps([exported(run, given.engine) for run in found], indent=1) if given.engine else ""
        if given.beside:
            text = _table(_one(found, given.results), read(given.beside.read_text(encoding="utf-8")))
        if given.out:
            replace_text(given.out, f"{text}\n")
        else:
            print(text)
    except (EngineError, StoreError) as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        print(f"{getattr(error, 'filename', None) or given.beside}: {error}", file=sys.stderr)
        return 2
    return 0


def _one(runs: Sequence[Run], folder: Path) -> Run:
    if len(runs) > 1:
        raise EngineError(f"{folder} has {len(runs)} runs; give the id of one, or its start: --run {_ids(runs)}")
    if runs[0].virtual:
        raise EngineError(f"the trees of {_ids(runs)} begin at the target's own token, which no engine's count has")
    return runs[0]


def _ids(runs: Sequence[Run]) -> str:
    return ", ".join([str(run.row["run_id"]) for run in runs[:3]] + ["..."] * (len(runs) > 3))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m specdec_trees.engines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path, help="a folder of results, or of an experiment")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--as", dest="engine", choices=ENGINES, help="whose names the JSON has")
    what.add_argument("--beside", type=Path, metavar="FILE", help="a record of an engine, set beside one run")
    parser.add_argument("--run", default="", metavar="ID", help="the run's id, or its start (default: all runs)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="written there, not printed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
