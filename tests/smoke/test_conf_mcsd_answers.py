"""Improved MCSD's Table 1: what it runs, and that its table shows all of it."""

import json
from typing import Any

import pandas as pd
from composed import cells, composed, plain

from bench.artifacts.runs import Run
from bench.papers.improving_mcsd.methods import admits
from bench.papers.improving_mcsd.quality import METHODS

NO_BLOCK: Any = None


def test_table_1_runs_both_rules_for_one_to_three_first_tokens_and_shows_every_run():
    pairs = composed("experiment=improving_mcsd/table1").pairs
    configs = [composed(*cell) for pair in pairs for cell in cells("improving_mcsd/table1", f"pair={pair}")]
    seen = set()
    for config in configs:
        found = plain(config)
        drafter, verifier, pair = found["drafter"], found["verifier"], found["pair"]
        row = pd.Series(
            {
                "method": drafter.pop("method"),
                "verifier": verifier["name"],
                "temperature": found["decoding"]["temperature"],
                "drafter_params": json.dumps({k: v for k, v in drafter.items() if k not in ("name", "_target_")}),
            }
        )
        (key,) = [key for key, method in METHODS.items() if admits(method, Run(NO_BLOCK, row))]
        seen.add((*key, pair["name"]))
        assert pair["published"]["target"] == "llama2_7b_chat"
        assert pair["published"]["draft"] in ("jf68m", "tinyllama_1_1b")
        assert not pair["published"]["stand_in"]
        assert verifier["allow_lossy"]
        assert (found["dataset"]["name"], found["dataset"]["limit"]) == ("mt_bench", 80)
        assert found["decoding"]["max_new_tokens"] == 200
        assert not found["decoding"]["ignore_eos"], "answers are read"
        assert [found[f"record_{table}"] for table in ("quality", "answers", "variation")] == [True] * 3
    assert len(seen) == len(configs) == 12
