"""Marks and verdicts by order of GSD's Table 1, against a recomputation from the rows that shares no code with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import recomputed
from compared import REFERENCE, alter, copied
from ordered import Row, alone_judged, assert_marks, assert_verdicts, details, groups
from recomputed import Files
from recomputed_order import Line, Paper, mal, mark_of, mean_speedup, per_row, speedup

pytestmark = pytest.mark.long


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
    verdicts = table.frame[table.frame["label"] == "GSD"].set_index(["target_words", "dataset"])
    for header in ("drafted", "num_displaced"):
        cell = verdicts.loc[("tiny_eagle (for llama2_70b)", "gsm8k"), f"{header}_verdict"]
        assert alone_judged(cell) == "order holds"


def test_gsd_mean_speedups_are_told_apart_in_pairs(tmp_path: Path) -> None:
    """GSD is a tenth ahead in every conversation, and conversations differ by much more; the machine is steady."""
    folder = copied("gsd/table1", tmp_path / "gsd" / "table1")
    runs = [Files(folder).run(path.stem.removeprefix("run_id=")) for path in (folder / "runs").iterdir()]
    for run in runs:
        rows = Files(folder).rows("prompts", run["run_id"])
        alter(folder, "prompts", run["run_id"], decode_s=_seconds(rows, 1.1 if run["method"] == "gsd" else 1.0))
    assert_gsd(tmp_path)
    files, table = details("gsd/table1", tmp_path)
    (found,) = (rows for rows in groups(table, ["target_words", "draft_words", "dataset"]) if _is_main(rows[0][0]))
    by_method = {row["label"]: (row, runs) for row, runs in found}
    for method in ("SSD", "TSD", "GSD"):
        assert alone_judged(by_method[method][0]["mean_speedup_verdict"]) == "order holds"
    low, high = (mean_speedup(files, *by_method[method][1]).interval for method in ("SSD", "GSD"))
    assert low[2] > high[1]  # which the intervals alone do not tell
    assert any("autoregressive arms of either decoding" in note for note in table.notes)
    assert [mark_of(by_method[method][0]["mean_speedup"]) for method in ("SSD", "TSD", "GSD")] == ["", "", " *"]


def _is_main(row: Row) -> bool:
    return (row["target_words"], row["dataset"]) == ("tiny_eagle (for llama2_70b)", "gsm8k")


def _seconds(prompts: pd.DataFrame, speed: float) -> Callable[[dict[str, Any]], float]:
    """A hundredth of a second per token without the method; with it less, in every conversation by another factor."""
    places = {prompt: place for place, prompt in enumerate(sorted(set(prompts["prompt_id"])))}

    def seconds(row: dict[str, Any]) -> float:
        faster = speed * (2 + places[row["prompt_id"]] / len(places)) if row["arm"] == "method" else 1.0
        return row["num_decoded_tokens"] / 100 / faster

    return seconds


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
        "num_displaced": merged,
    }


def assert_gsd(root: Path) -> None:
    """Table 1 of these results."""
    files, table = details("gsd/table1", root)
    for found in groups(table, ["target_words", "draft_words", "dataset"]):
        rows = [row for row, _ in found]
        runs = [sorted(ids, key=lambda run_id: files.run(run_id)["temperature"]) for _, ids in found]
        lines = [_gsd_lines(files, row["label"], *ids) for row, ids in zip(rows, runs, strict=True)]
        for header in ("acceptance_rate", "mal", "greedy", "sampled", "mean_speedup"):
            assert_marks(rows, header, [own[header] for own in lines])
        for header in GSD.values():
            kept = [place for place, row in enumerate(rows) if header != "num_displaced" or "GSD" in row["label"]]
            assert_verdicts(rows, f"{header}_verdict", [own[header] for own in lines], kept)
            others = {row[f"{header}_verdict"] for place, row in enumerate(rows) if place not in kept}
            assert others <= {""}


def _gsd_lines(files: Files, method: str, greedy: str, sampled: str) -> dict[str, Line]:
    """By header. The speedup that the paper prints is a mean of two decodings'."""
    paper, name = Paper("gsd", "table1", files.run(greedy)), method.lower().replace(" ", "_")
    printed = {header: paper.value(name, metric) for metric, header in GSD.items()}
    steps, counted = files.steps(greedy), recomputed.gsd_samples(files, greedy)
    merged = (steps["num_displaced"] > 0).astype(float)
    return {
        "acceptance_rate": per_row(counted, counted["rate"], published=printed["acceptance_rate"]),
        "drafted": per_row(counted, counted["drafted"], published=printed["drafted"]),
        "num_displaced": per_row(steps, merged, published=printed["num_displaced"]),
        "mean_speedup": mean_speedup(files, greedy, sampled, published=printed["mean_speedup"]),
        "mal": mal(files, greedy),
        "greedy": speedup(files, greedy),
        "sampled": speedup(files, sampled),
    }


GSD = {
    "acceptance_rate": "acceptance_rate",
    "drafted_tokens": "drafted",
    "graph_success": "num_displaced",
    "speedup": "mean_speedup",
}
