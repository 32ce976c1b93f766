"""All methods at equal budget, against plain pandas and numpy: rows, marks, and what the figure draws."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Polygon, Rectangle
from scipy import stats

from specdec_trees.artifacts import frame, noise, ties
from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.artifacts.style import METHODS
from specdec_trees.artifacts.tables import ABSENT, named_rows
from specdec_trees.papers.beyond.budget import budget
from specdec_trees.papers.registry import build

pytestmark = pytest.mark.long

SIZED = {
    "chain": lambda n: {"shape": {"_target_": "specdec_core.shapes.chain", "depth": n}},
    "binary": lambda n: {"shape": {"_target_": "specdec_core.shapes.binary_bfs", "size": n}},
    "mcsd": lambda n: {"shape": {"_target_": "specdec_core.shapes.branching_within", "size": n}},
    "spec_infer": lambda n: {"shape": {"acceptance": [0.5], "n": n}},
    "sequoia": lambda n: {"acceptance": [0.5, 0.2], "n": n, "depth": None},
    "opt_tree": lambda n: {"n": n, "delta": 0.2},
    "eagle2": lambda n: {"total": n + 1, "depth": 5, "k": 10},
    "dyspec": lambda n: {"n": n, "max_depth": 32},
    "tsd": lambda n: {"k": 4, "verify_cap": n},
    "gsd": lambda n: {"k": 4, "verify_cap": n, "tau": 2},
    "prompt_lookup_tree": lambda n: {"n": n, "num_matches": 4},
    "suffix_decoding": lambda n: {"n": n, "max_pattern": 64},
}
MALS = {"chain": 1.6, "binary": 2.0, "mcsd": 2.4, "spec_infer": 2.4, "sequoia": 3.0, "opt_tree": 3.0, "eagle2": 3.0}


def add(cells, method: str, n: int, **given) -> str:
    """A run whose trees have n nodes, or fewer by `size`."""
    return cells.add(f"sized_{method}", method, params=SIZED[method](n), **({"size": n} | given))


def fill(cells) -> None:
    """Two datasets, two temperatures, two budgets; the graphs leave two nodes of theirs unused."""
    cells.experiment = "bench/budget"
    for dataset in ("mt_bench", "c4"):
        for temperature in (0.0, 0.6):
            place = {"dataset": dataset, "temperature": temperature, "conversations": 8}
            cells.add("autoregressive", mal=1.0, speedup=1.0, **place)
            for method in SIZED:
                for n in (8, 32):
                    size = n - 2 if method in ("tsd", "gsd") else n
                    mal, speedup = MALS.get(method, 2.6) + n / 100, 1 + n / 100 + 0.02 * len(method)
                    add(cells, method, n, size=size, mal=mal, speedup=speedup, **place)


def built(cells, pair: str | None = None):
    return build("bench/budget", cells.root, pair)


def lines(axes) -> list:
    return [line for line in axes.get_lines() if line.get_marker() not in ("None", None, "")]


EACH_OUT = np.vstack([np.ones(8), 1 - np.eye(8)])
"""How often each of eight conversations counts: all, then all but one."""


@pytest.fixture
def budget_cells(cells):
    fill(cells)
    return cells


def rows_of(table) -> pd.DataFrame:
    return table.frame.assign(run_id=table.runs)


def totals(results, run_id: str, metric: str) -> pd.DataFrame:
    """By conversation, the sums that the metric is made of."""
    if metric == "mal":
        steps = results.steps[results.steps["run_id"] == run_id]
        return steps.groupby("prompt_id")["acceptance_length"].agg(["sum", "count"]).astype(float)
    prompts = results.prompts[results.prompts["run_id"] == run_id]
    wide = prompts.pivot_table(
        index="prompt_id", columns="arm", values=["decode_s", "num_decoded_tokens"], aggfunc="sum"
    )
    wide.columns = [f"{name} {arm}" for name, arm in wide.columns]
    return wide


def value(sums: pd.DataFrame, metric: str, counts: np.ndarray) -> np.ndarray:
    """The metric of so many copies of every conversation."""
    total = {column: counts @ sums[column].to_numpy() for column in sums}
    if metric == "mal":
        return total["sum"] / total["count"]
    per_token = {
        arm: total[f"decode_s {arm}"] / total[f"num_decoded_tokens {arm}"] for arm in ("autoregressive", "method")
    }
    return per_token["autoregressive"] / per_token["method"]


def machine(first: pd.DataFrame, other: pd.DataFrame) -> float:
    """How far the interval of the speeds of two runs' autoregressive arms reaches from 1, either way round."""
    speeds = []
    for sums in (first, other):
        total = [EACH_OUT @ sums[f"{name} autoregressive"].to_numpy() for name in ("num_decoded_tokens", "decode_s")]
        speeds.append(total[0] / total[1])
    _, low, high = interval(speeds[0] / speeds[1], 1)
    return max(high, 1 / low) - 1


def interval(values: np.ndarray, c: float) -> tuple[float, float, float]:
    """A value and its interval, from the values of all eight conversations and without each in turn."""
    value, without = values[0], np.log(values[1:])
    reach = np.exp(stats.t.ppf(0.975, 7) * (1 + c / 8) * np.sqrt(7 * np.var(without)))
    return value, value / reach, value * reach


def test_every_run_stands_at_its_budget_and_the_nodes_it_drafted(budget_cells) -> None:
    _, table = built(budget_cells)
    assert len(table.frame) == 4 * (1 + 2 * len(SIZED))
    assert set(table.frame["conversations"]) == {"8"}
    capped = table.frame[table.frame["label"].isin(["TSD", "GSD"])]
    assert set(capped["words"] + "/" + capped["mean_size"]) == {"8/6.0", "32/30.0"}


def test_best_and_tied_are_what_intervals_of_pairs_say(budget_cells) -> None:
    _, table = built(budget_cells)
    results, seen = budget_cells.load(), defaultdict(int)
    sized = rows_of(table)[table.frame["words"] != ABSENT]
    for _, group in sized.groupby(["place", "temperature", "words"]):
        for metric in ("mal", "speedup"):
            sums = {run: totals(results, run, metric) for run in group["run_id"]}
            values = {run: float(value(found, metric, np.ones(8))) for run, found in sums.items()}
            best = max(values, key=values.__getitem__)
            for run, cell in zip(group["run_id"], group[metric], strict=True):
                own = value(sums[best], metric, EACH_OUT) - value(sums[run], metric, EACH_OUT)
                reach = stats.t.ppf(0.975, 7) * (1 + 1 / 8) * np.sqrt(7 * np.var(own[1:]))
                apart = max(values[best] / values[run], values[run] / values[best]) - 1
                tied = abs(own[0]) <= reach or (metric == "speedup" and apart <= machine(sums[best], sums[run]))
                expected = "*" if run == best else "=" if tied else ""
                assert cell.rpartition("]")[2].strip() == expected
                seen[expected] += 1
    assert set(seen) == {"*", "=", ""}, "the rows have all three"
    assert seen["*"] == 4 * 2 * 2
    assert not table.frame.loc[table.frame["words"] == ABSENT, ["mal", "speedup"]].stack().str.contains("[*=]").any()


def test_equal_runs_are_tied_and_a_clear_winner_stands_alone(cells) -> None:
    cells.experiment = "bench/budget"
    for method, mal in (("opt_tree", 4.0), ("eagle2", 4.0), ("chain", 1.5)):
        add(cells, method, 8, mal=mal, spread=False, speedup=2.0 if method == "chain" else 1.0)
    marks = built(cells)[1].frame.set_index("label")
    assert {marks.loc[name, "mal"].split()[-1] for name in ("OPT-Tree", "EAGLE-2")} == {"*", "="}
    assert marks.loc["chain", "mal"].endswith("]")
    assert marks["speedup"].str.contains("[*=]").to_dict() == {"chain": True, "OPT-Tree": False, "EAGLE-2": False}


def test_the_notes_count_wins_by_budget(cells) -> None:
    cells.experiment = "bench/budget"
    for temperature in (0.0, 0.6):
        add(cells, "opt_tree", 8, mal=4.5, temperature=temperature, speedup=1.0)
        add(cells, "chain", 8, mal=1.2, temperature=temperature, speedup=2.0)
    notes = built(cells)[1].notes
    assert "Budget 8, MAL: best or tied, in how many of 2 settings: OPT-Tree 2." in notes
    assert "Budget 8, speedup: best or tied, in how many of 2 settings: chain 2." in notes


def test_what_failed_is_named_and_what_is_lossy_is_not_there(cells) -> None:
    cells.experiment = "bench/budget"
    kept = [add(cells, "opt_tree", 8), add(cells, "chain", 8, status="oom")]
    add(cells, "gsd", 8, lossless=False)
    figure, table = built(cells)
    assert set(table.runs) == set(kept)
    assert figure.runs == (kept[0],)
    row = table.frame.set_index("label").loc["chain"]
    assert (row["mal"], row["words"], row["mean_size"], row["conversations"]) == ("oom", "8", "oom", ABSENT)
    assert not table.frame["mal"].str.contains("[*]").any(), "one run alone is set against none"


def test_without_a_tree_there_is_nothing_to_compare(cells) -> None:
    cells.experiment = "bench/budget"
    cells.add("autoregressive", mal=1.0, speedup=1.0)
    with pytest.raises(NoResultsError):
        built(cells)


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        *((method, params(17), 17) for method, params in SIZED.items()),
        ("eagle_tree", {"shape": {"_target_": "specdec_core.shapes.eagle25"}}, 25),
        ("ssd", {"k": 1, "verify_cap": 100, "max_steps": 10}, 10),
        ("autoregressive", {}, None),
    ],
)
def test_budgets_are_read_off_parameters(method: str, params: dict, expected: int | None, cells) -> None:
    drawn = {"eagle_tree": 25, "ssd": 10, "autoregressive": 0}.get(method, 3)
    run_id = cells.add(method, params=params, size=drawn)
    results = cells.load()
    for steps, size in ((results.steps, expected), (results.steps.iloc[:0], expected if method in SIZED else None)):
        (run,) = (run for run in named_rows(frame.load(replace(results, steps=steps))) if run.run_id == run_id)
        assert budget(run) == size


def test_variants_of_a_method_are_lines_of_their_own(cells) -> None:
    cells.experiment = "bench/budget"
    for n in (8, 32):
        for delta in (0.2, 0.7):
            cells.add("sized_opt_tree", "opt_tree", params={"n": n, "delta": delta}, size=n)
    figure, table = built(cells)
    assert list(table.frame["label"]) == 2 * ["OPT-Tree, delta=0.2", "OPT-Tree, delta=0.7"]
    looks = [(line.get_color(), line.get_marker(), line.get_linestyle()) for line in lines(figure.canvas.axes[0])]
    assert len(set(looks)) == 2


def test_methods_are_told_apart_without_colour(budget_cells) -> None:
    figure, _ = built(budget_cells)
    drawn = lines(figure.canvas.axes[0])
    assert len({line.get_marker() for line in drawn}) == len(SIZED)
    assert len({(to_hex(line.get_color()), line.get_linestyle()) for line in drawn}) == len(SIZED)
    assert set(SIZED) <= set(METHODS)
    (legend,) = figure.canvas.legends
    assert len(legend.get_texts()) == len(SIZED) + 1
    assert not any(axis.get_legend() for axis in figure.canvas.axes)


def test_the_control_is_a_band_around_one(budget_cells) -> None:
    figure, table = built(budget_cells)
    row = table.frame[(table.frame["words"] == ABSENT)].iloc[0]
    low, high = (float(part) for part in row["speedup"].partition("[")[2].rstrip("]").split(", "))
    bands = [patch for patch in figure.canvas.axes[4].patches if isinstance(patch, Rectangle | Polygon)]
    (band,) = bands
    box = band.get_extents().transformed(figure.canvas.axes[4].transData.inverted())
    assert (box.y0, box.y1) == pytest.approx((low, high), abs=0.006)
    assert not figure.canvas.axes[0].patches


def noisy_pair(cells) -> None:
    """A pair whose equal work lies far apart in one of two settings, and one on which it does not."""
    cells.experiment = "bench/budget"
    for pair, dataset, factor in (("tiny", "c4", 2.5), ("tiny", "mt_bench", 1), ("other", "c4", 1)):
        place = {"pair": pair, "dataset": dataset, "conversations": 8}
        cells.add("autoregressive", mal=1.0, speedup=1.0, **place)
        for number, method in enumerate(("chain", "binary", "opt_tree")):
            for n in (8, 32):
                step_s = 0.004 * factor ** (number + (n == 32))
                add(cells, method, n, mal=2.0, speedup=1.2 + number, base_step_s=step_s, **place)


def test_times_of_a_pair_that_are_too_noisy_rank_nothing_anywhere(cells) -> None:
    """Not in its calm setting, not at one of its budgets: text, marks, points and band are of one decision."""
    noisy_pair(cells)
    figure, table = built(cells)
    rows = table.frame[
        table.frame["label"].isin(["chain", "binary tree", "OPT-Tree"]) | (table.frame["mean_size"] != "0.0")
    ]
    quiet = rows["place"].str.startswith("other")
    assert rows.loc[~quiet, "speedup"].str.endswith(ties.UNRANKED).all()
    assert not rows["speedup"][quiet].str.endswith(ties.UNRANKED).any()
    assert rows["speedup"][quiet].str.endswith(ties.BEST).any()
    assert not rows["mal"].str.endswith(ties.UNRANKED).any()
    assert "tiny" in table.warning
    assert "other" not in table.warning
    titles = {axis.get_title(): place for place, axis in enumerate(figure.canvas.axes) if axis.get_title()}
    columns = len(titles)
    for title, place in titles.items():
        above, below = figure.canvas.axes[place], figure.canvas.axes[place + columns]
        assert {line.get_markerfacecolor() == "none" for line in lines(above)} == {False}
        assert {line.get_markerfacecolor() == "none" for line in lines(below)} == {title.startswith("tiny")}
        bands = [patch for patch in below.patches if isinstance(patch, Rectangle | Polygon)]
        assert len(bands) == (not title.startswith("tiny"))


def test_the_decision_is_of_pair_and_machine(cells) -> None:
    noisy_pair(cells)
    runs = frame.load(cells.load())
    assert (noise.unranked(runs) == (runs["pair"] == "tiny")).all()
    assert not noise.unranked(runs[runs["pair"] == "other"]).any()
    assert noise.unranked(runs[:0]).empty
