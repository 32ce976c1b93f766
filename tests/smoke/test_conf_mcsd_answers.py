"""Improved MCSD's Table 1: what it runs, and that its table shows all of it."""

from composed import cells, composed, plain

from specdec_trees.papers.improving_mcsd.methods import admits
from specdec_trees.papers.improving_mcsd.quality import METHODS
from specdec_trees.plan.published import row_of


def test_table_1_runs_both_rules_for_one_to_three_first_tokens_and_shows_every_run():
    pairs = composed("experiment=improving_mcsd/table1").pairs
    configs = [composed(*cell) for pair in pairs for cell in cells("improving_mcsd/table1", f"pair={pair}")]
    seen = set()
    for config in configs:
        found = plain(config)
        verifier, pair = found["verifier"], found["pair"]
        (header,) = [f"{arm.header} {arm.params}" for arm in METHODS if admits(arm, row_of(found))]
        seen.add((header, pair["name"]))
        assert pair["published"]["target"] == "llama2_7b_chat"
        assert pair["published"]["draft"] in ("jf68m", "tinyllama_1_1b")
        assert not pair["published"]["stand_in"]
        assert verifier["allow_lossy"]
        assert (found["dataset"]["name"], found["dataset"]["limit"]) == ("mt_bench", 80)
        assert found["decoding"]["max_new_tokens"] == 200
        assert not found["decoding"]["ignore_eos"], "answers are read"
        assert [found[f"record_{table}"] for table in ("quality", "answers", "variation")] == [True] * 3
    assert len(seen) == len(configs) == 12
