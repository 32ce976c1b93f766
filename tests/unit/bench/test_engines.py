"""Runs under the names of engines, and beside records of theirs: counted by hand."""

import json

import pandas as pd
import pytest

from specdec_trees.engines.__main__ import main
from specdec_trees.engines.reading import read
from specdec_trees.engines.records import ENGINES, EngineError, Record
from specdec_trees.engines.table import beside, table
from specdec_trees.engines.writing import Run, exported
from specdec_trees.locations import CONF
from specdec_trees.results.store import REFERENCE

ROWS = CONF.parent / "results" / REFERENCE
PATHS = [[0, 1], [], [1], [0, 0], []]
TURNS = [("a", 0), ("a", 0), ("b", 0), ("b", 1), ("b", 1)]


def run(draws: str = "topk") -> Run:
    """Five steps of three turns: trees of three nodes and two levels, and a last step without a draft."""
    row = {"run_id": "0123456789ab", "pair": "tiny", "dataset": "quiz", "drafter": "opt_tree", "verifier": "greedy"}
    steps = pd.DataFrame(TURNS, columns=["prompt_id", "turn"]).assign(
        num_drafted=[3, 3, 3, 3, 0],
        depth=[2, 2, 2, 2, 0],
        num_accepted=[len(path) for path in PATHS],
        acceptance_length=[len(path) + 1 for path in PATHS],
        accepted_ranks=PATHS,
    )
    prompts = pd.DataFrame({"prompt_id": ["a", "b", "b"], "turn": [0, 0, 1], "num_new_tokens": [5, 3, 5]})
    nodes = pd.DataFrame(columns=["depth", "rank", "parent_accepted"])
    return Run("quiz", pd.Series(row | {"temperature": 0.0, "draws": draws}), prompts, steps, nodes)


def test_a_run_under_vllms_names():
    found = exported(run(), "vllm")
    assert found["vllm"] == {
        "num_drafts": 4,
        "num_draft_tokens": 12,
        "num_accepted_tokens": 5,
        "num_accepted_tokens_per_pos": (3, 2),
        "num_spec_tokens": 2,
        "mean_acceptance_length": 1 + 5 / 4,
        "draft_acceptance_rate": 5 / 12,
    }
    assert found["mal"] == 10 / 5  # the step without a draft is one of ours
    assert found["by_position"] == {"joint": [3 / 4, 2 / 4], "conditional": [3 / 4, 2 / 3]}
    assert found["by_depth_and_rank"] == {"accepted": [[2, 1], [1, 1]], "tested": None}


def test_a_run_under_the_names_of_llama_cpp():
    assert exported(run(), "llama.cpp")["llama.cpp"] == {
        "num_drafts": 4,
        "n_drafted": 12,
        "n_accept": 5,
        "num_accepted_tokens_per_pos": (3, 2),
        "mean acceptance length": 2.25,
        "draft acceptance rate": 5 / 12,
        "acceptance rate per position": [0.75, 0.5],
    }


def test_a_run_as_records_of_aiperf_one_for_each_turn():
    first, second, third = exported(run(), "aiperf")["aiperf"]
    assert first == {
        "engine": "specdec-trees",
        "prompt_id": "a",
        "turn": 0,
        "completion_tokens": 5,
        "num_spec_steps": 2,
        "num_draft_tokens": 6,
        "num_accepted_draft_tokens": 2,
        "acceptance_histogram": {"0": 1, "2": 1},
        "num_spec_tokens": 2,
        "mean_acceptance_length": 2.0,
        "draft_acceptance_rate": 2 / 6,
    }
    assert (second["acceptance_histogram"], third["acceptance_histogram"]) == ({"1": 1}, {"2": 1})
    assert [one["completion_tokens"] for one in (second, third)] == [3, 5]


def test_trees_that_begin_at_the_targets_token_have_no_record():
    found = exported(run("target_topk"), "vllm")
    assert found["vllm"] is None
    assert found["by_position"]["joint"] == [3 / 4, 2 / 4]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("accepts", [True, False])
def test_what_is_written_is_read_again(engine, accepts):
    """Whole, also where no step accepts anything, or the last positions nothing."""
    ours = run()
    if not accepts:
        ours.steps["num_accepted"] = 0
    record, _ = read(json.dumps([exported(ours, engine)]))
    assert record == (Record(12, 5, 4, (3, 2)) if accepts else Record(12, 0, 4, (0, 0)))


def test_of_several_runs_the_one_that_is_compared_is_read():
    texts = [exported(run(), "vllm") | {"run_id": name} for name in ("0123456789ab", "other")]
    texts[1]["vllm"] = texts[1]["vllm"] | {"num_draft_tokens": 40}
    assert read(json.dumps(texts), "0123456789ab")[0] == Record(12, 5, 4, (3, 2))
    assert read(json.dumps(texts), "other")[0] == Record(40, 5, 4, (3, 2))
    assert read("\n".join(map(json.dumps, texts[1:])), "0123456789ab")[0].drafted == 40
    with pytest.raises(EngineError):
        read(json.dumps(texts), "third")


def values(theirs: Record) -> dict:
    return {name: (a, b) for name, a, b, _ in beside(run(), theirs)[0]}


def test_a_record_beside_a_run():
    """Theirs is a chain: of 4 steps 3 accepted one token, 2 a second one, one a third, which ours cannot have."""
    assert [*values(Record(12, 6, 4, (3, 2, 1))).values()] == [
        (2.5, 2.25),
        (6 / 12, 5 / 12),
        (3 / 4, 3 / 4),
        (2 / 4, 2 / 4),
        (1 / 4, 0),
        (3 / 4, 3 / 4),
        (2 / 3, 2 / 3),
        (1 / 2, 0),
    ]
    assert values(Record(8, 3, 4, (3,)))["2 or more accepted"] == (0, 2 / 4)
    assert [*values(Record(16, 12)).values()] == [(12 / 16, 5 / 12)]


def test_a_length_that_a_record_does_not_tell_is_shown_as_its_ends():
    """10 accepted in 5 to 10 steps is 2 to 3 tokens a step; in 500 to 502 of 1000 it is 3.00 in two decimals."""
    wide, narrow = Record(40, 10, 8, None, (5, 10)), Record(4000, 1000, 501, None, (500, 502))
    assert values(wide)["mean acceptance length"] == (pytest.approx((2, 3)), 2.25)
    assert values(narrow)["mean acceptance length"] == (1 + 1000 / 501, 2.25)
    assert "| 2.000 to 3.000 | 2.250 | -0.750 to +0.250 |" in table(run(), wide, [])


LOG = "draft acceptance = 0.62500 ( 5 accepted / 8 generated), mean len = 2.25\n"


def test_the_commands_on_reference_rows(tmp_path, capsys):
    """Accepted over drafted is a column of the run's own row; on chains per step, too."""
    smoke = str(ROWS / "smoke")
    assert main([smoke, "--as", "vllm"]) == 0
    found = {one["run_id"]: one for one in json.loads(capsys.readouterr().out)}
    rows = pd.read_parquet(ROWS / "rows" / "runs.parquet").drop_duplicates("run_id").set_index("run_id")
    assert len(found) == 14
    for run_id, one in found.items():
        assert one["vllm"]["draft_acceptance_rate"] == pytest.approx(rows.loc[run_id, "acceptance_rate_node"])
        assert one["mal"] == pytest.approx(rows.loc[run_id, "mal"])
    chain = next(one for one in found.values() if one["drafter"] == "chain4")
    assert len(chain["vllm"]["num_accepted_tokens_per_pos"]) == chain["vllm"]["num_spec_tokens"] == 4
    (tmp_path / "log").write_text(LOG)
    out = tmp_path / "beside.md"
    given = [smoke, "--run", chain["run_id"], "--beside", str(tmp_path / "log"), "--out", str(out)]
    assert main(given) == 0
    assert f"{chain['vllm']['mean_acceptance_length']:.3f}" in out.read_text()
    assert main([smoke, "--beside", str(tmp_path / "log")]) == 2
    assert main([smoke, "--run", "ffff", "--as", "vllm"]) == 2
    (tmp_path / "log").write_text("nothing")
    assert main(given) == 2
