"""`runtime.baseline=shared`: the first cell of a setting decodes the autoregressive arm and lends it to the others."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from cells import execute
from resumed import Counted, Killed

from specdec_trees.measure import provenance
from specdec_trees.measure.cell import Runtime
from specdec_trees.plan import planning
from specdec_trees.results.parquet import file_name
from specdec_trees.results.store import load

CELL = (
    *("pair=tiny", "dataset=mini", "runtime.warmup_conversations=0", "limit=2", "decoding.max_new_tokens=8"),
    "runtime.baseline=shared",
)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout without changes, at a revision."""
    monkeypatch.setattr(provenance, "own_git_state", lambda: ("a1b2", False))


def runs(root: Path, *cells: tuple[str, ...]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of these cells, one decoded after the other, by drafter; and their turns."""
    for overrides in cells:
        assert execute(root, *CELL, *overrides) == "ok"
    found = load(root, "default")
    return found.runs.set_index("drafter"), found.prompts


def test_the_second_cell_has_the_first_ones_arm(tmp_path: Path) -> None:
    found, prompts = runs(tmp_path, ("drafter=chain4",), ("drafter=opt_tree",))
    assert found["baseline_of"].isna().tolist() == [True, False]
    first, second = found.loc["chain4"], found.loc["opt_tree"]
    assert second["baseline_of"] == first["run_id"]
    own = prompts[prompts["arm"] == "autoregressive"].sort_values(["prompt_id", "turn"])
    assert own.groupby("run_id")["start"].count()[[first["run_id"], second["run_id"]]].tolist() == [4, 2]
    arms = [own[own["run_id"] == run["run_id"]].drop(columns=["run_id", "start"]) for run in (first, second)]
    both = [arm[arm["turn"] == 0].reset_index(drop=True) for arm in arms]
    assert len(both[0]) == 2
    pd.testing.assert_frame_equal(*both)
    later = [arm.loc[arm["turn"] > 0, "decode_s"].tolist() for arm in arms]
    assert len(later[0]) == len(later[1]) > 0, "later turns are asked behind the method's own answers"
    assert not set(later[0]) & set(later[1])
    assert second["identical"] == first["identical"] == 1


def test_another_setting_or_a_shared_arm_lends_nothing(tmp_path: Path) -> None:
    sampled = ("drafter=chain4", "decoding.temperature=0.7")
    found, _ = runs(tmp_path, ("drafter=chain4",), ("drafter=chain8",), ("drafter=opt_tree",))
    assert found["baseline_of"].dropna().unique().tolist() == [found.loc["chain4", "run_id"]]
    assert execute(tmp_path, *CELL, *sampled) == "ok"
    rows = load(tmp_path, "default").runs
    assert rows.loc[rows["temperature"] == 0.7, "baseline_of"].isna().all()


def test_who_began_with_a_baseline_of_its_own_goes_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though another cell could lend it one by then; else all that was decoded would be dropped."""
    counted = Counted(monkeypatch)
    counted.left = 5
    with pytest.raises(Killed):
        execute(tmp_path, *CELL, "drafter=opt_tree")
    counted.left = None
    runs(tmp_path, ("drafter=chain4",))
    counted.decoded.clear()
    found, _ = runs(tmp_path, ("drafter=opt_tree",))
    assert found.loc["opt_tree", ["num_starts", "identical"]].tolist() == [2, 1]
    assert pd.isna(found.loc["opt_tree", "baseline_of"])
    assert len(counted.decoded) == 4, "two turns of four in both arms"


def test_who_began_with_a_lent_baseline_keeps_its_lender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though another one could lend it by then, whose run id comes first."""
    counted = Counted(monkeypatch)
    alone = ("runtime.baseline=true", "name=elsewhere")
    for drafter in ("chain4", "binary"):
        assert execute(tmp_path, *CELL, f"drafter={drafter}", *alone) == "ok"
    first, last = sorted(load(tmp_path, "elsewhere").runs["run_id"])
    copied(tmp_path, last)
    counted.left = 4
    with pytest.raises(Killed):
        execute(tmp_path, *CELL, "drafter=opt_tree")
    counted.left = None
    copied(tmp_path, first)
    counted.decoded.clear()
    assert execute(tmp_path, *CELL, "drafter=opt_tree") == "ok"
    found = load(tmp_path, "default").runs.set_index("drafter").loc["opt_tree"]
    assert (found["num_starts"], found["baseline_of"]) == (2, last)


def copied(root: Path, run_id: str) -> None:
    """A cell's files from one experiment to another."""
    for table in ("runs", "prompts", "steps"):
        (root / "default" / table).mkdir(parents=True, exist_ok=True)
        shutil.copy(root / "elsewhere" / table / file_name(run_id), root / "default" / table)


@pytest.mark.parametrize("state", [(None, None), ("a1b2", True), ("a1b2", None)])
def test_nothing_is_lent_where_rows_do_not_name_their_code(
    state: tuple[str | None, bool | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    monkeypatch.setattr(provenance, "own_git_state", lambda: state)
    found, _ = runs(tmp_path, ("drafter=chain4",), ("drafter=opt_tree",))
    assert found["baseline_of"].isna().all()
    assert "only committed code is lent one" in caplog.text


def test_a_plan_counts_lent_turns_once() -> None:
    """Later turns follow a cell's own answers, which are alike where greedy decoding is lossless, and grouped."""
    sweep = ["experiment=smoke", "pair=tiny", "limit=2", "decoding.max_new_tokens=10"]

    def tokens(*options: str) -> list[int]:
        return [job.baseline for job in planning.make([*sweep, *options]).pairs[0].of_kind("cells")]

    each = tokens("runtime.grouped=false")
    whole, first = each[0], 2 * 10
    assert whole > first
    assert set(each) == {whole}
    assert tokens() == [whole, whole] + [0] * (len(each) - 2)
    assert tokens("runtime.grouped=false", "runtime.baseline=shared") == [whole] + [whole - first] * (len(each) - 1)
    assert tokens("runtime.baseline=shared") == [whole] + [0] * (len(each) - 1)
    drawn = ("decoding=t1", "verifier=target_sample")
    assert tokens(*drawn) == [whole, whole] + [whole - first] * (len(each) - 2)
    assert set(tokens("runtime.baseline=false")) == {0}


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match=r"runtime\.baseline is true, false or shared, not lent"):
        Runtime(baseline="lent")
