"""Acceptance under the names of engines, and records of engines: counted by hand."""

import json

import pandas as pd
import pytest

from specdec_trees import engines
from specdec_trees.engines import Record, Run
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
    found = engines.exported(run(), "vllm")
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
    assert engines.exported(run(), "llama.cpp")["llama.cpp"] == {
        "n_drafted": 12,
        "n_accept": 5,
        "mean acceptance length": 2.25,
        "draft acceptance rate": 5 / 12,
        "acceptance rate per position": [0.75, 0.5],
    }


def test_a_run_as_records_of_aiperf_one_for_each_turn():
    first, second, third = engines.exported(run(), "aiperf")["aiperf"]
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
    found = engines.exported(run("target_topk"), "vllm")
    assert found["vllm"] is None
    assert found["by_position"]["joint"] == [3 / 4, 2 / 4]


VLLM = {"num_spec_steps": 43, "num_accepted_draft_tokens": 10, "num_draft_tokens": 129, "num_spec_tokens": 3}
VLLM |= {"mean_acceptance_length": 53 / 43, "draft_acceptance_rate": 10 / 129, "acceptance_histogram": [39, 1, 0, 3]}
OF_43 = Record(129, 10, 43, (4, 3, 3))
"""39 steps accepted nothing, one accepted 1 token, three 3: at least one in 4, two in 3, three in 3."""
BROKEN = [json.dumps(VLLM | {"acceptance_histogram": counts}) for counts in ("x", {"a": 1}, ["x"])]
BROKEN += [json.dumps({"num_draft_tokens": 1, "num_accepted_tokens": 1, "num_drafts": []}), "[" * 100_000]
LOG = (
    "INFO SpecDecoding metrics: Mean acceptance length: 2.25, Accepted throughput: 1.00 tokens/s, Drafted throughput: "
    "2.00 tokens/s, Accepted: 5 tokens, Drafted: 8 tokens, Per-position acceptance rate: 0.750, 0.500, Avg Draft "
    "acceptance rate: 62.5%\n"
)
SCRAPED = """# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
vllm:spec_decode_num_drafts_total{engine="0"} 3.0
vllm:spec_decode_num_drafts_total{engine="1"} 1.0
vllm:spec_decode_num_drafts_created{engine="0"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0"} 8.0
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 5.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="0"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2.0
"""
SLOT = "slot print_timing: id 0 | draft acceptance rate = 0.75000 (   12 accepted /    16 generated)\n"
LATER = (
    "draft acceptance = 0.62500 ( 5 accepted / 8 generated), mean acceptance length = 2.25, "
    "acceptance rate per position = (0.750, 0.500)\n"
)
OF_4, NONE_OF_4 = Record(8, 5, 4, (3, 2)), Record(8, 0, 4, (0, 0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps({"choices": [], "metrics": {"speculative_decoding": VLLM}}), OF_43),
        (json.dumps(VLLM | {"acceptance_histogram": {"0": 39, "1": 1, "3": 3}, "engine": "vllm"}), OF_43),
        ("\n".join([json.dumps(VLLM)] * 2), Record(258, 20, 86, (8, 6, 6))),
        (LOG, OF_4),
        (LOG * 2, Record(16, 10, 8, (6, 4))),
        (SCRAPED, OF_4),
        (LATER, OF_4),
        (SLOT, Record(16, 12)),
        (SLOT + LATER, Record(24, 17)),  # of one line alone steps and positions are not known
        (json.dumps({"timings": {"predicted_n": 9, "draft_n": 16, "draft_n_accepted": 12}}), Record(16, 12)),
        ("n_drafted = 16\nn_accept  = 12\naccept    = 75.000%\n", Record(16, 12)),
        ("draft acceptance = 0.0 (0 accepted / 8 generated), acceptance rate per position = (0.0, 0)", NONE_OF_4),
        (LOG + LOG.replace("5 tokens", "0 tokens").replace("0.750, 0.500", "0.000, 0.000"), OF_4 + NONE_OF_4),
        ("draft acceptance = 0.625 (    5 accepted /     8 generated), mean len =  2.25\n", Record(8, 5, 4)),
        (SCRAPED.replace("vllm:", "llamacpp:"), OF_4),
    ],
)
def test_records_of_engines(text, expected):
    assert engines.read(text) == expected


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"num_draft_tokens": "x", "num_accepted_tokens": 1}', "17", *BROKEN]
)
def test_what_is_no_record_is_refused(text):
    with pytest.raises(engines.EngineError):
        engines.read(text)


@pytest.mark.parametrize("engine", engines.ENGINES)
def test_what_is_written_is_read_again(engine):
    """llama.cpp's own counts have no steps, which follow from its mean length."""
    found = engines.read(json.dumps([engines.exported(run(), engine)]))
    expected = run().record
    assert (found.drafted, found.accepted, found.steps) == (expected.drafted, expected.accepted, expected.steps)
    assert found.reached == pytest.approx(expected.reached)


def test_a_record_beside_a_run():
    """Theirs is a chain: of 4 steps 3 accepted one token, 2 a second one, none a third."""
    rows, _ = engines.beside(run(), Record(12, 5, 4, (3, 2, 0)))
    values = {name: (theirs, ours) for name, theirs, ours, _ in rows}
    assert [*values.values()] == [
        (2.25, 2.25),
        (5 / 12, 5 / 12),
        (3 / 4, 3 / 4),
        (2 / 4, 2 / 4),
        (3 / 4, 3 / 4),
        (2 / 3, 2 / 3),
    ]
    assert [each[1:3] for each in engines.beside(run(), Record(16, 12))[0]] == [(12 / 16, 5 / 12)]


def test_the_commands_on_reference_rows(tmp_path, capsys):
    """Accepted over drafted is a column of the run's own row; on chains per step, too."""
    smoke = str(ROWS / "smoke")
    assert engines.main([smoke, "--as", "vllm"]) == 0
    found = {one["run_id"]: one for one in json.loads(capsys.readouterr().out)}
    rows = pd.read_parquet(ROWS / "rows" / "runs.parquet").drop_duplicates("run_id").set_index("run_id")
    assert len(found) == 14
    for run_id, one in found.items():
        assert one["vllm"]["draft_acceptance_rate"] == pytest.approx(rows.loc[run_id, "acceptance_rate_node"])
        assert one["mal"] == pytest.approx(rows.loc[run_id, "mal"])
    chain = next(one for one in found.values() if one["drafter"] == "chain4")
    assert len(chain["vllm"]["num_accepted_tokens_per_pos"]) == chain["vllm"]["num_spec_tokens"] == 4
    (tmp_path / "log").write_text(LATER)
    out = tmp_path / "beside.md"
    given = [smoke, "--run", chain["run_id"], "--beside", str(tmp_path / "log"), "--out", str(out)]
    assert engines.main(given) == 0
    assert f"{chain['vllm']['mean_acceptance_length']:.3f}" in out.read_text()
    assert engines.main([smoke, "--beside", str(tmp_path / "log")]) == 2
    assert engines.main([smoke, "--run", "ffff", "--as", "vllm"]) == 2
    (tmp_path / "log").write_text("nothing")
    assert engines.main(given) == 2
