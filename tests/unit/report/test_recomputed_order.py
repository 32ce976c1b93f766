"""Marks and verdicts by order in the reference results, against a recomputation that shares no code with the tables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import partial

import pytest
import recomputed
from compared import REFERENCE
from ordered import Row, assert_marks, assert_verdicts, details, groups, is_verdict
from recomputed import Files
from recomputed_order import Line, Paper, mal, mal_as_published, mark_of, per_row, speedup, tokens_per_s, verdict

from specdec_trees.artifacts.findings import BUSY
from specdec_trees.artifacts.tables import Table
from specdec_trees.artifacts.ties import UNRANKED
from specdec_trees.papers.registry import build

pytestmark = pytest.mark.long


def test_opt_tree() -> None:
    """Of each method the size with the largest speedup counts, and is judged as the paper's script counts.

    Of plain decoding MAL and speedup are 1 by definition.
    """
    files, table = details("opt_tree/table1")
    pairs = list(groups(table, ["target_words"]))
    assert len(pairs) == 4
    for found in pairs:
        _assert_pair(files, found)


def _assert_pair(files: Files, found: Sequence[tuple[Row, list[str]]]) -> None:
    speed = {run_id: recomputed.speedup(files, run_id, prefill=True)[0] for _, (run_id,) in found}
    methods = {run_id: str(files.run(run_id)["method"]) for run_id in speed}
    best = {max((one for one in speed if methods[one] == method), key=speed.__getitem__) for method in methods.values()}
    chosen = {run_id: row for row, (run_id,) in found if run_id in best}
    others = [row for row, (run_id,) in found if run_id not in best]
    sizes: dict[str, dict[int, str]] = {method: {} for method in methods.values()}
    for row, (run_id,) in found:
        sizes[methods[run_id]][int(row["size_words"].partition(" ")[0])] = run_id
    assert others
    for header, (metric, of, column, published_as) in OPT_TREE.items():
        assert not any(mark_of(row[name]) for row in others for name in (header, column))
        assert_marks(list(chosen.values()), header, [of(files, run_id) for run_id in chosen])
        paper = Paper("opt_tree", "table1", files.run(next(iter(chosen))))
        of_paper = {run_id: paper.value(method, metric) for run_id, method in methods.items()}.__getitem__
        trees = {
            method: [own[size] for size in sorted(paper.sizes(method))] if paper.sizes(method) <= own.keys() else []
            for method, own in sizes.items()
            if method != "autoregressive"
        }
        every = {run_id: published_as(files, run_id, published=of_paper(run_id)) for run_id in methods}
        lines = {run_id: every[run_id] for run_id in chosen}
        assert_marks(list(chosen.values()), column, list(lines.values()))
        judged = {run_id for run_id in chosen if metric != "mal" or methods[run_id] != "autoregressive"}
        for run_id, row in chosen.items():
            wanted = verdict(lines[run_id], [lines[other] for other in judged - {run_id}])
            if metric != "tokens_per_s" and methods[run_id] == "autoregressive":
                wanted = "not comparable: 1 by definition"
            elif metric == "mal":
                wanted = _of_trees(methods[run_id], trees, every)
            assert is_verdict(row[f"{column}_verdict"], "" if wanted.startswith("not comparable") else wanted)


def _of_trees(method: str, trees: dict[str, list[str]], every: dict[str, Line]) -> str:
    """The verdict on any of the sizes that the paper chose from, where all of them give the same."""
    known = [other for other, runs in trees.items() if runs]
    found = []
    for chosen in itertools.product(*(trees[other] for other in known)):
        lines = {other: every[run_id] for other, run_id in zip(known, chosen, strict=True)}
        if method in lines:
            found.append(verdict(lines.pop(method), list(lines.values())))
    same = len({re.split(r" \(|:", words)[0] for words in found}) == 1
    return found[0] if same else "not comparable: other tree"


OPT_TREE = {
    "mal": ("mal", mal, "mal_as_published", mal_as_published),
    "tokens_per_s": ("tokens_per_s", tokens_per_s, "tokens_per_s_with_prefill", partial(tokens_per_s, prefill=True)),
    "speedup": ("speedup", speedup, "speedup_with_prefill", partial(speedup, prefill=True)),
}
"""By header: the paper's name, how we count, and the column that counts as the paper's script does."""


def test_smoke() -> None:
    """MAL is ranked among trees of the same size, times among all."""
    files, (table, *_) = Files(REFERENCE / "smoke"), build("smoke", REFERENCE)
    assert isinstance(table, Table)
    rows, ids = table.frame.to_dict("records"), table.runs
    for header, of in (("tokens_per_s", tokens_per_s), ("speedup", speedup)):
        noisy = UNRANKED * table.warning.startswith(BUSY)  # stands in place of the marks
        assert_marks([row | {header: row[header] + noisy} for row in rows], header, [of(files, run) for run in ids])
    for size in set(table.frame["n"]):
        even = [(row, mal(files, run_id)) for row, run_id in zip(rows, ids, strict=True) if row["n"] == size]
        assert_marks([row for row, _ in even], "mal", [line for _, line in even])


def test_improving_mcsd() -> None:
    """What is not lossless is ranked apart; the draft's levels are read off the configuration."""
    files, table = details("improving_mcsd/table2")
    headers = {"SD": "sd", "MCSD": "mcsd", "TI-MCSD (lossy)": "target_init_mcsd"}
    for found in groups(table, ["target_words", "draft_words", "dataset", "temperature"]):
        rows, ids = [row for row, _ in found], [run_id for _, (run_id,) in found]
        paper, lines = Paper("improving_mcsd", "table2", files.run(ids[0])), {"alpha": [], "mal": [], "speedup": []}
        for row, run_id in zip(rows, ids, strict=True):
            steps, lossless = files.steps(run_id), bool(files.run(run_id)["lossless"])
            levels, first = recomputed.mcsd_tree(row["label"], row["configuration"])
            params = row["configuration"].replace(" ", "").replace("x", "-")
            params = params if params.startswith("gamma") else f"k_config={params}"
            published = paper.value(headers.get(row["label"], ""), "acceptance_rate", params)
            accepted = steps["num_accepted"] - (first > 0)
            lines["alpha"].append(per_row(steps, accepted, levels, published=published, lossless=lossless))
            lines["mal"].append(mal(files, run_id, lossless=lossless))
            lines["speedup"].append(speedup(files, run_id, lossless=lossless))
        for header, own in lines.items():
            assert_marks(rows, header, own)
        assert_verdicts(rows, "alpha_verdict", lines["alpha"])


def test_dyspec() -> None:
    """Tokens per step are ranked among the trees that have as many nodes as the first method's."""
    files, table = details("dyspec/table1")
    for found in groups(table, ["target_words", "draft_words", "dataset", "temperature"]):
        rows, ids = [row for row, _ in found], [run_id for _, (run_id,) in found]
        paper, methods = (
            Paper("dyspec", "table1", files.run(ids[0])),
            [row["label"].lower().partition(",")[0] for row in rows],
        )
        for header, metric, of in (("speedup", "speedup", speedup), ("mal", "tokens_per_step", mal)):
            lines = [
                of(files, run_id, published=paper.value(method, metric))
                for run_id, method in zip(ids, methods, strict=True)
            ]
            even = [place for place, row in enumerate(rows) if header != "mal" or row["nodes"] == rows[0]["nodes"]]
            assert_marks([rows[place] for place in even], header, [lines[place] for place in even])
            assert not any(mark_of(row[header]) for place, row in enumerate(rows) if place not in even)
            assert_verdicts(rows, f"{header}_verdict", lines, whose=methods)
