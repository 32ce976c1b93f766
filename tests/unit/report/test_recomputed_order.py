"""Marks and verdicts by order of the reference results' tables, against a recomputation that shares no code with them.

Published values are read from the stored numbers as they are; intervals and ties are made from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
import recomputed
from compared import REFERENCE, alter, copied
from recomputed import Files
from recomputed_order import Line, Paper, mal, mark_of, marks, per_row, speedup, tokens_per_s, verdict

from bench.report.artifacts import build
from bench.report.tables import Table

Row = dict[str, str]


@cache
def details(artifact: str, root: Path = REFERENCE) -> tuple[Files, Table]:
    """The rows behind an experiment, and the table that has verdicts."""
    found = [output for output in build(artifact, root) if isinstance(output, Table)]
    return Files(root / artifact), found[-1]


def groups(table: Table, columns: Sequence[str]) -> Iterator[list[tuple[Row, list[str]]]]:
    """Rows that were run with their run ids, those together that are equal in these columns."""
    found = zip(table.frame.to_dict("records"), (runs.split() for runs in table.runs), strict=True)
    ran = [(row, runs) for row, runs in found if runs]
    for _, group in groupby(ran, key=lambda pair: [pair[0][column] for column in columns]):
        yield list(group)


def assert_marks(rows: Sequence[Row], header: str, lines: Sequence[Line]) -> None:
    assert [mark_of(row[header]) for row in rows] == marks(lines), header


def assert_verdicts(
    rows: Sequence[Row], header: str, lines: Sequence[Line], places: Iterable[int] | None = None
) -> None:
    """Of all rows, or of some against all others."""
    for place in range(len(rows)) if places is None else places:
        assert rows[place][header] == verdict(lines[place], [*lines[:place], *lines[place + 1 :]]), header


def test_opt_tree() -> None:
    """Of each method the size with the most tokens/s counts; of plain decoding MAL and speedup are 1 by definition."""
    files, table = details("opt_tree/table1")
    (found,) = groups(table, ["Target"])
    speed = {run_id: recomputed.tokens_per_s(files, run_id)[0] for _, (run_id,) in found}
    methods = {run_id: str(files.run(run_id)["method"]) for run_id in speed}
    best = {max((one for one in speed if methods[one] == method), key=speed.__getitem__) for method in methods.values()}
    chosen = {run_id: row for row, (run_id,) in found if run_id in best}
    others = [row for row, (run_id,) in found if run_id not in best]
    assert others
    for header, (metric, of) in OPT_TREE.items():
        assert not any(mark_of(row[header]) for row in others)
        paper = Paper("opt_tree", "table1", files.run(next(iter(chosen))))
        lines = {run_id: of(files, run_id, published=paper.value(methods[run_id], metric)) for run_id in chosen}
        assert_marks(list(chosen.values()), header, list(lines.values()))
        judged = {run_id for run_id in chosen if metric != "mal" or methods[run_id] != "autoregressive"}
        for run_id, row in chosen.items():
            wanted = verdict(lines[run_id], [lines[other] for other in judged - {run_id}])
            if metric != "tokens_per_s" and methods[run_id] == "autoregressive":
                wanted = "not comparable: 1 by definition"
            assert row[f"verdict {header}"] == wanted


OPT_TREE = {"MAL": ("mal", mal), "tokens/s": ("tokens_per_s", tokens_per_s), "speedup": ("speedup", speedup)}


def test_gsd() -> None:
    """Rates and counts are of greedy decoding, and without merging no graph can be a success."""
    assert_gsd(REFERENCE)


def test_gsd_counts_are_told_apart_in_pairs(tmp_path: Path) -> None:
    """Counts that differ by a twentieth in every conversation, and by much more from one conversation to the next."""
    folder = copied("gsd/table1", tmp_path / "gsd" / "table1")
    runs = [Files(folder).run(path.stem.removeprefix("run_id=")) for path in (folder / "runs").iterdir()]
    for run in runs:
        if run["temperature"] == 0:
            alter(folder, "steps", run["run_id"], **_counts(Files(folder).steps(run["run_id"]), run["method"]))
    assert_gsd(tmp_path)
    _, table = details("gsd/table1", tmp_path)
    verdicts = table.frame[table.frame["Method"] == "GSD"].set_index(["Target", "Dataset"])
    for header in ("Drafted Token Num", "Graph Success"):
        assert verdicts.loc[("tiny_eagle (for llama2_70b)", "gsm8k"), f"verdict {header}"] == "order holds"


def _counts(steps: pd.DataFrame, method: str) -> dict[str, Callable[[dict[str, Any]], int]]:
    """All drafted tokens of a conversation in its first step, and merges in the first of its steps."""
    size, share = {"gsd": (1.05, 0.15), "tsd": (1.1, 0.0)}.get(method, (1.0, 0.0))
    places = {prompt: place for place, prompt in enumerate(sorted(set(steps["prompt_id"])))}
    lengths = steps.groupby("prompt_id").size()

    def merged(row: dict[str, Any]) -> int:
        wanted = share + 0.8 * places[row["prompt_id"]] / len(places)
        return int(row["step"] < wanted * lengths[row["prompt_id"]])

    return {
        "num_live": lambda row: round(10_000 * size * (1 + places[row["prompt_id"]])) if row["step"] == 0 else 0,
        "num_prob_leaf": lambda row: 0,
        "num_behind_merge": merged,
    }


def assert_gsd(root: Path) -> None:
    """Table 1 of these results."""
    files, table = details("gsd/table1", root)
    for found in groups(table, ["Target", "Draft", "Dataset"]):
        rows = [row for row, _ in found]
        runs = [sorted(ids, key=lambda run_id: files.run(run_id)["temperature"]) for _, ids in found]
        lines = [_gsd_lines(files, row["Method"], *ids) for row, ids in zip(rows, runs, strict=True)]
        for header in ("Acceptance Rate", "MAL", "greedy", "top-p"):
            assert_marks(rows, header, [own[header] for own in lines])
        for header in GSD.values():
            kept = [place for place, row in enumerate(rows) if header != "Graph Success" or row["Method"] == "GSD"]
            assert_verdicts(rows, f"verdict {header}", [own[header] for own in lines], kept)
            others = {row[f"verdict {header}"] for place, row in enumerate(rows) if place not in kept}
            assert others <= {"not comparable: 0 without merging"}


def _gsd_lines(files: Files, method: str, greedy: str, sampled: str) -> dict[str, Line]:
    """By header. The speedup that the paper prints is a mean of two, and no ratio of sums."""
    paper, name = Paper("gsd", "table1", files.run(greedy)), method.lower().replace(" ", "_")
    printed = {header: paper.value(name, metric) for metric, header in GSD.items()}
    steps, counted = files.steps(greedy), recomputed.gsd_samples(files, greedy)
    merged = (steps["num_behind_merge"] > 0).astype(float)
    both = recomputed.mean_speedup(*map(files.speedup_sums, (greedy, sampled)))
    return {
        "Acceptance Rate": per_row(counted, counted["rate"], published=printed["Acceptance Rate"]),
        "Drafted Token Num": per_row(counted, counted["drafted"], published=printed["Drafted Token Num"]),
        "Graph Success": per_row(steps, merged, published=printed["Graph Success"]),
        "Speedup": Line(None, given=both, published=printed["Speedup"]),
        "MAL": mal(files, greedy),
        "greedy": speedup(files, greedy),
        "top-p": speedup(files, sampled),
    }


GSD = {
    "acceptance_rate": "Acceptance Rate",
    "drafted_tokens": "Drafted Token Num",
    "graph_success": "Graph Success",
    "speedup": "Speedup",
}


def test_improving_mcsd() -> None:
    """What does not keep the target's law is ranked apart; the draft's levels are read off the configuration."""
    files, table = details("improving_mcsd/table2")
    headers = {"SD": "sd", "MCSD": "mcsd", "TI-MCSD (lossy)": "target_init_mcsd"}
    for found in groups(table, ["Target", "Draft", "Dataset", "Temp"]):
        rows, ids = [row for row, _ in found], [run_id for _, (run_id,) in found]
        paper, lines = Paper("improving_mcsd", "table2", files.run(ids[0])), {"alpha": [], "MAL": [], "speedup": []}
        for row, run_id in zip(rows, ids, strict=True):
            steps, lossless = files.steps(run_id), bool(files.run(run_id)["lossless"])
            levels, first = recomputed.mcsd_tree(row["Method"], row["Configuration"])
            params = row["Configuration"].replace(" ", "").replace("x", "-")
            params = params if params.startswith("gamma") else f"k_config={params}"
            published = paper.value(headers.get(row["Method"], ""), "acceptance_rate", params)
            accepted = steps["num_accepted"] - (first > 0)
            lines["alpha"].append(per_row(steps, accepted, levels, published=published, lossless=lossless))
            lines["MAL"].append(mal(files, run_id, lossless=lossless))
            lines["speedup"].append(speedup(files, run_id, lossless=lossless))
        for header, own in lines.items():
            assert_marks(rows, header, own)
        assert_verdicts(rows, "verdict", lines["alpha"])


def test_dyspec() -> None:
    """Tokens per step are ranked among the trees that have as many nodes as the first method's."""
    files, table = details("dyspec/table1")
    for found in groups(table, ["Target", "Draft", "Dataset", "temperature"]):
        rows, ids = [row for row, _ in found], [run_id for _, (run_id,) in found]
        paper, methods = Paper("dyspec", "table1", files.run(ids[0])), [row["Method"].lower() for row in rows]
        for header, metric, of in (("speedup", "speedup", speedup), ("MAL", "tokens_per_step", mal)):
            lines = [
                of(files, run_id, published=paper.value(method, metric))
                for run_id, method in zip(ids, methods, strict=True)
            ]
            even = [place for place, row in enumerate(rows) if header != "MAL" or row["N"] == rows[0]["N"]]
            assert_marks([rows[place] for place in even], header, [lines[place] for place in even])
            assert not any(mark_of(row[header]) for place, row in enumerate(rows) if place not in even)
            assert_verdicts(rows, f"verdict {header}", lines)
