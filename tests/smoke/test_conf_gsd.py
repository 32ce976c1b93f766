"""GSD's experiments against what the paper's tables and figures compare."""

import inspect
import json
from collections import defaultdict

import pytest
from composed import cells, composed, names, of_hydra, plain
from omegaconf import OmegaConf

from specdec_core.drafters import TokenGraph, graph_growth, token_graph, unmerging
from specdec_trees.artifacts.arms import Arm
from specdec_trees.locations import CONF
from specdec_trees.papers.gsd import methods

BOTH = "target_sample spec_infer gsd_nondeterministic gsd_nondeterministic_code"
TO_THE_END = {"gsd/table10", "gsd/fig6"}
"""Of GSD's experiments those whose answers are read, and hence end at EOS."""


@pytest.mark.long
@pytest.mark.parametrize("experiment", [name for name in names("experiment") if name.startswith("gsd/")])
def test_gsds_experiments_have_512_new_tokens_and_the_thresholds_of_their_models(experiment):
    configs = [composed(*cell) for cell in cells(experiment)]
    swept = set(of_hydra(f"experiment={experiment}").sweeper.params or {})
    small = {"gsd/table6", "gsd/table7", "gsd/table8", "gsd/table9", "gsd/table10", "gsd/fig7", "gsd/fig8"}
    tau, prob, sib = (1, 0.4, 0.1) if experiment in small else (2, 0.2, 0.3)
    for config in configs:
        assert config.decoding.ignore_eos == (experiment not in TO_THE_END)
        assert (config.decoding.max_new_tokens, config.dataset.max_total_tokens) == (512, None)
        assert config.dataset.max_prompt_tokens == (None if experiment == "gsd/fig6" else 512)
        drafter = config.drafter
        if drafter.name in ("ssd_adaptive", "medusa"):  # Self SSD and Medusa are other papers'
            continue
        assert (drafter.max_steps, drafter.get("verify_cap", 100)) == (10, 100)
        if "drafter.theta_prob" not in swept and drafter.method != "ssd_noexit":
            assert drafter.theta_prob == prob
        if drafter.method == "gsd" and not swept & {"drafter.theta_sib", "drafter.tau"}:
            assert (drafter.tau, drafter.theta_sib) == (2 if drafter.name == "gsd_tau2" else tau, sib)


@pytest.mark.parametrize(("pair", "method"), [("tiny", "opt_tree"), ("tiny_medusa", "medusa")])
def test_a_tree_of_other_drafts_is_not_called_medusas(pair, method):
    assert composed(f"pair={pair}", "drafter=medusa").drafter.method == method


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("experiment", "datasets", "temperatures", "drafters", "rules"),
    [
        (
            "table1",
            "gsm8k xsum",
            {0.0, 0.7},
            "ssd ssd_adaptive ssd_noexit tsd tsd_sib gsd gsd_leaves gsd_code",
            "target_sample",
        ),
        ("table2", "gsm8k xsum", {0.7}, "ssd ssd_iid tsd gsd", BOTH),
        ("table3", "gsm8k", {0.0}, "ssd tsd_k2 gsd_k2 tsd gsd", "target_sample"),
        ("table4", "gsm8k xsum", {0.0, 0.7}, "gsd medusa", "target_sample"),
        *(
            (table, "alpaca wmt14 gsm8k", {0.0}, "ssd tsd gsd gsd_leaves gsd_code", "target_sample")
            for table in ("table6", "table7", "table8")
        ),
        ("table9", "alpaca wmt14 gsm8k", {0.7}, "ssd ssd_iid gsd", BOTH),
        ("table10", "xsum", {0.7}, "ssd ssd_iid gsd gsd_tau2", BOTH),
    ],
)
def test_gsds_tables_have_the_rows_of_the_paper(experiment, datasets, temperatures, drafters, rules):
    configs = [composed(*cell) for cell in cells(f"gsd/{experiment}")]
    assert {config.dataset.name for config in configs} == set(datasets.split())
    assert {config.decoding.temperature for config in configs} == temperatures
    assert {config.decoding.top_p for config in configs} == {0.7 if value else 1.0 for value in temperatures}
    assert {config.drafter.name for config in configs} == set(drafters.split())
    assert {config.verifier.name for config in configs} == set(rules.split())
    kinds = 3 if "gsd_nondeterministic" in rules else 1
    assert len(configs) == len(datasets.split()) * len(temperatures) * len(drafters.split()) * kinds
    assert {config.record_variation for config in configs} == {kinds > 1}
    assert {config.record_quality for config in configs} == {experiment == "table10"}
    assert {config.runtime.baseline for config in configs} == {True}


@pytest.mark.parametrize("table", [name for name in names("experiment") if name.startswith("gsd/table")])
def test_every_run_of_a_table_is_one_that_it_shows(table):
    """Reports show runs of the paper's parameters alone: what an experiment runs must have them."""
    for config in (composed(*cell) for cell in cells(table)):
        drafter = plain(config)["drafter"]
        name, method = drafter.pop("name"), drafter.pop("method")
        models = methods.LARGE if table in {f"gsd/table{number}" for number in range(1, 6)} else methods.SMALL
        models = models | {"tau": 2} if name == "gsd_tau2" else models
        # Table 5 reads k and tau off its runs; Self SSD and Medusa are other papers'
        if name in ("gsd_probe", "ssd_adaptive", "medusa"):
            continue
        del drafter["_target_"]
        arm = methods.bound(Arm("", (method,), ""), models, k=2 if name.endswith("_k2") else 4)
        assert methods.off(arm, json.loads(json.dumps(drafter))) == {}, name


def test_what_gsds_other_experiments_sweep():
    def swept(experiment: str, *overrides: str) -> set[tuple]:
        drafters = [composed(*cell).drafter for cell in cells(f"gsd/{experiment}", *overrides)]
        return {(d.name, d.k, d.tau, d.theta_prob, d.theta_sib) for d in drafters}

    usual, tenths = ("gsd", 4, 2), (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert swept("table5") == {("gsd_probe", k, tau, 0.2, 0.3) for k in (3, 5, 32) for tau in range(5)}
    assert all(composed(*cell).drafter.tau_as_context for cell in cells("gsd/table5"))
    assert swept("fig3") == {("tsd_sib", 4, None, 0.2, 0.3)}
    assert swept("fig5a") == {("gsd", k, 2, 0.2, 0.3) for k in range(1, 6)} | {
        ("tsd", k, None, 0.2, 0.0) for k in range(1, 6)
    }
    assert swept("fig5b") == {("gsd", 4, tau, 0.2, 0.3) for tau in range(1, 5)}
    assert swept("fig5b", "drafter.tau=5,6") == {("gsd", 4, tau, 0.2, 0.3) for tau in (5, 6)}
    assert swept("fig5c") == {(*usual, theta, 0.3) for theta in tenths}
    assert swept("fig5d") == {(*usual, 0.2, theta) for theta in tenths}
    assert swept("fig7") == {("ssd", 1, None, 0.4, 0.0), ("tsd", 4, None, 0.4, 0.0), ("gsd", 4, 1, 0.4, 0.1)}
    assert swept("fig8") == {("gsd", 4, 1, 0.4, theta) for theta in tenths[1:5]}
    assert composed("experiment=gsd/fig3").limit == 100
    assert composed("experiment=gsd/fig6").case_study is True


def test_every_option_of_token_graphs_and_every_choice_is_set_by_a_file():
    """What no file sets is no option for long, and `gsd_code` is the public code by one that was thought idle."""
    files = {path.stem for path in (CONF / "drafter").glob("*.yaml") if "TokenGraph" in path.read_text()}
    variants = OmegaConf.load(CONF / "variants.yaml").drafter
    found = defaultdict(lambda: defaultdict(set))
    for name in files | {name for file in files for name in variants.get(file, {})}:
        for option, value in plain(composed(f"drafter={name}"))["drafter"].items():
            found[option][value].add(name)
    options = inspect.signature(TokenGraph).parameters.keys() - {"draft"}
    assert options <= found.keys()
    assert found["pruning"].keys() == set(graph_growth.PRUNING)
    assert found["pruning"]["code"] == {"gsd_code"}
    assert found["draws"].keys() >= set(token_graph.DRAWS) - {"topk"}
    assert found["cap_order"].keys() >= set(unmerging.CAP_ORDERS) - {"breadth"}
    swept = {composed(*cell).drafter.tau_as_context for cell in cells("gsd/table5")}
    assert swept | found["tau_as_context"].keys() == {True, False}


def test_gsds_datasets_are_the_others_with_512_tokens_before_and_after():
    for name in ("gsm8k", "xsum", "alpaca", "wmt14"):
        ours, usual = (plain(composed(f"dataset={chosen}"))["dataset"] for chosen in (f"gsd/{name}", name))
        frame = ours.pop("frame", None)
        assert (frame is None) == (name in ("xsum", "wmt14"))
        assert usual.pop("frame") is None
        lengths = {"max_prompt_tokens": 512, "max_new_tokens": 512, "max_total_tokens": None}
        assert ours == usual | lengths | ({"limit": 320} if name == "alpaca" else {})
