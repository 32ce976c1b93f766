"""Two sides of a comparison against plain sums, and what is said of cells that changed or are missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import recomputed
from compared import REFERENCE, alter, compared, copied, couples, numbers, run_of
from recomputed import Files, experiments

from specdec_trees.compare.changes import FASTER, LONGER, SLOWER, TIED
from specdec_trees.compare.sides import ComparisonError

pytestmark = pytest.mark.long


def test_ratios_are_those_of_the_sums_over_conversations(cells, after) -> None:
    ids = cells.add(mal=2.5, speedup=1.2), after.add(mal=3.4, speedup=0.9)
    files = [Files(one.store.folder) for one in (cells, after)]
    steps = [own.steps(run_id) for own, run_id in zip(files, ids, strict=True)]
    sums = [own.speedup_sums(run_id) for own, run_id in zip(files, ids, strict=True)]
    (couple,) = couples(cells.store.folder, after.store.folder)
    mal, gain, speed = (couple.changes[name] for name in ("mal", "speedup", "tokens_per_s"))
    assert numbers(mal.ratio) == pytest.approx(recomputed.mal_ratio(steps[1], steps[0]))
    assert numbers(gain.ratio) == pytest.approx(recomputed.speedup_ratio(sums[1], sums[0]))
    assert (mal.first, mal.second) == pytest.approx([recomputed.mal(one)[0] for one in steps])
    assert (gain.first, gain.second) == pytest.approx([recomputed.gain(one.sum()) for one in sums])
    both = recomputed.of_two(sums[1], sums[0])
    own = recomputed.interval(both, lambda total: (total["t"] / total["s"]) / (total["t_"] / total["s_"]), c=1)
    plain = recomputed.interval(both, lambda total: (total["t0"] / total["s0"]) / (total["t0_"] / total["s0_"]), c=1)
    assert numbers(speed.ratio) == pytest.approx(own)
    assert numbers(couple.control) == pytest.approx(plain)
    assert (mal.word, gain.word, speed.word) == (LONGER, SLOWER, SLOWER)
    assert (mal.ratio.n, couple.num_conversations) == (6, 6)


def test_only_conversations_that_both_decoded_whole_count(cells, after) -> None:
    """B has fewer conversations, and one turn of it did not end well: its whole conversation is left out of both."""
    ids = cells.add(conversations=9), after.add(conversations=8, mal=3.0)
    lost = ("p1", 1)
    alter(
        after.store.folder,
        "prompts",
        ids[1],
        status=lambda row: "failed" if (row["prompt_id"], row["turn"]) == lost else row["status"],
    )
    steps = []
    for one, run_id in zip((cells, after), ids, strict=True):
        rows = Files(one.store.folder).steps(run_id)
        steps.append(rows[~rows["prompt_id"].isin(["p1", "p8"])])
    (couple,) = couples(cells.store.folder, after.store.folder)
    assert numbers(couple.changes["mal"].ratio) == pytest.approx(recomputed.mal_ratio(steps[1], steps[0]))
    assert couple.changes["mal"].first == pytest.approx(recomputed.mal(steps[0])[0])
    assert couple.num_conversations == 7
    said = "\n".join(compared(cells.store.folder, after.store.folder).notes)
    assert re.search(r"9 conversations, B 8; all is of the [78] of both|9 conversations, B 7", said)


def test_columns_of_times_are_of_the_conversations_that_count_in_both(cells, after) -> None:
    """A stall in A spoils one turn of p1 and all of p2, another in B one arm of p3: none counts on either side."""
    ids = cells.add(conversations=9), after.add(conversations=9, speedup=0.9)
    spoilt = ({("p1", 1), ("p2", 0), ("p2", 1)}, {("p3", 0)})
    for one, run_id, turns in zip((cells, after), ids, spoilt, strict=True):
        alter(
            one.store.folder,
            "prompts",
            run_id,
            contaminated=lambda row, turns=turns: (row["prompt_id"], row["turn"]) in turns and row["arm"] == "method",
        )
    (couple,) = couples(cells.store.folder, after.store.folder)
    sums = []
    for one, run_id in zip((cells, after), ids, strict=True):
        arms = [Files(one.store.folder).turns(arm, run_id) for arm in ("method", "autoregressive")]
        kept = [rows[~rows["prompt_id"].isin(["p1", "p2", "p3"])] for rows in arms]
        totals = [rows[["decode_s", "num_decoded_tokens"]].sum() for rows in kept]
        sums.append([total["decode_s"] / total["num_decoded_tokens"] for total in totals])
    gain, speed = couple.changes["speedup"], couple.changes["tokens_per_s"]
    gains, speeds = [plain / own for own, plain in sums], [1 / own for own, _ in sums]
    assert (gain.first, gain.second) == pytest.approx(gains)
    assert (speed.first, speed.second) == pytest.approx(speeds)
    assert (gain.ratio.value, speed.ratio.value) == pytest.approx((gains[1] / gains[0], speeds[1] / speeds[0]))
    assert (couple.num_conversations, couple.num_timed) == (9, 6)


def test_conversations_with_another_first_prompt_are_left_out(cells, after) -> None:
    """Ids are the same in two versions of a dataset; p1 and p4 have other lengths, and second turns do not count."""
    ids = cells.add(), after.add(mal=3.0)
    lengths = {("p1", 0): 21, ("p4", 0): 5, ("p2", 1): 99}
    alter(
        after.store.folder,
        "prompts",
        ids[1],
        num_prompt_tokens=lambda row: lengths.get((row["prompt_id"], row["turn"]), row["num_prompt_tokens"]),
    )
    (couple,) = couples(cells.store.folder, after.store.folder)
    assert couple.num_conversations == 6  # the prompts are said to be the same, and the lengths are not looked at
    alter(after.store.folder, "runs", ids[1], prompts_sha256=lambda row: "others")
    (couple,) = couples(cells.store.folder, after.store.folder)
    assert couple.num_conversations == 4
    kept = []
    for one, run_id in zip((cells, after), ids, strict=True):
        steps = Files(one.store.folder).steps(run_id)
        kept.append(steps[steps["prompt_id"].isin(["p0", "p2", "p3", "p5"])])
    assert numbers(couple.changes["mal"].ratio) == pytest.approx(recomputed.mal_ratio(kept[1], kept[0]))
    first, *_ = compared(cells.store.folder, after.store.folder).notes
    assert "2 (p1, p4)" in first
    alter(after.store.folder, "prompts", ids[1], num_prompt_tokens=lambda row: 1)
    with pytest.raises(ComparisonError, match="no conversation has its id and first prompt"):
        couples(cells.store.folder, after.store.folder)


@pytest.mark.parametrize(
    ("seconds", "speedup", "gain", "speed"),
    [
        ({"method": 0.9, "autoregressive": 1.0}, 1 / 0.9, FASTER, FASTER),
        ({"method": 1.1, "autoregressive": 1.2}, 1.2 / 1.1, TIED, TIED),
        ({"method": 1.2, "autoregressive": 1.1}, 1.1 / 1.2, TIED, SLOWER),
        ({"method": 0.8, "autoregressive": 1.1}, 1.1 / 0.8, FASTER, FASTER),
        ({"method": 1.3, "autoregressive": 0.9}, 0.9 / 1.3, SLOWER, SLOWER),
        ({"method": 1.0, "autoregressive": 0.9}, 0.9, TIED, TIED),
    ],
)
def test_times_that_are_no_farther_apart_than_the_control_are_tied(
    seconds: dict[str, float], speedup: float, gain: str, speed: str, tmp_path: Path
) -> None:
    """All seconds of an arm are longer by a factor, so that every ratio has its value in all resamples."""
    changed = copied("smoke", tmp_path / "smoke")
    run_id = run_of(changed, "opt_tree")
    alter(changed, "prompts", run_id, decode_s=lambda row: row["decode_s"] * seconds[row["arm"]])
    (couple,) = (one for one in couples(REFERENCE / "smoke", changed) if one.first.run_id == run_id)
    assert numbers(couple.changes["speedup"].ratio) == pytest.approx((speedup,) * 3)
    assert numbers(couple.control) == pytest.approx((1 / seconds["autoregressive"],) * 3)
    words = [couple.changes[name].word for name in ("mal", "speedup", "tokens_per_s")]
    assert words == [TIED, gain, speed]


def test_a_faster_machine_is_no_faster_method(tmp_path: Path) -> None:
    """All times of B are shorter by a fifth: so are the control's, and the speedup is what it was."""
    faster = copied("smoke", tmp_path / "smoke")
    for path in (faster / "prompts").iterdir():
        alter(faster, "prompts", path.stem.removeprefix("run_id="), decode_s=lambda row: row["decode_s"] * 0.8)
    for couple in couples(REFERENCE / "smoke", faster):
        assert numbers(couple.control) == pytest.approx((1.25, 1.25, 1.25))
        speed, gain = (couple.changes[name] for name in ("tokens_per_s", "speedup"))
        assert speed.ratio.value == pytest.approx(1.25)
        assert (speed.word, gain.word) == (TIED, TIED)


@pytest.mark.parametrize("name", ["smoke", "sequoia"])
def test_results_against_themselves_are_tied(name: str) -> None:
    """An experiment, and a folder of several: ratios print as 1, outputs are identical, and nothing differs."""
    table = compared(REFERENCE / name, REFERENCE / name)
    names = [one for one in experiments(REFERENCE) if f"{one}/".startswith(f"{name}/")]
    assert len(table.frame) == sum(len(Files(REFERENCE / one).ids()) for one in names)
    assert ("experiment" in table.frame) == (name == "sequoia")
    for header in ("mal", "tokens_per_s", "speedup"):
        assert set(table.frame[f"{header}_verdict"]) == {TIED}
        assert set(table.frame[f"{header}_ratio"]) == {"1.000 [1.000, 1.000]"}
        assert (table.frame[f"{header}_first"] == table.frame[f"{header}_second"]).all()
    assert set(table.frame["control"]) == {"1.000 [1.000, 1.000]"}
    assert set(table.frame["identical"]) == {"100%"}
    cells = len(table.frame)
    assert table.notes[1:] == (f"Nothing got worse in {cells} of A's {cells} cells, by MAL or speedup.",)


def test_other_outputs_are_counted(tmp_path: Path) -> None:
    changed = copied("smoke", tmp_path / "smoke")
    run_id = run_of(changed, "opt_tree")
    alter(
        changed,
        "prompts",
        run_id,
        output_sha256=lambda row: row["output_sha256"] + "x" * (row["turn"] == 0 and row["arm"] == "method"),
    )
    turns = Files(changed).turns("method", run_id)["turn"]
    frame = compared(REFERENCE / "smoke", changed).frame.set_index("drafter")
    recomputed.assert_printed(frame.loc["opt_tree", "identical"], 100 * float((turns != 0).mean()), least=1)
    assert (frame.drop("opt_tree")["identical"] == "100%").all()
