"""`bench/rules` against plain sums: what stands beside what, bounds, and what is not shown."""

import pytest
from drawn import outputs, table_of

from specdec_trees.artifacts.outputs import NoResultsError
from specdec_trees.papers.beyond.rules import BY_DRAWS, BY_RULE, EXPECTED
from specdec_trees.results.rows import RuleRow

TREE = {"temperature": 0.6, "conversations": 8, "depth": 3}
RULES = {
    "topk": {"target_sample": 1.9},
    "iid": {"spec_infer": 2.0, "traversal_iid": 2.1},
    "without_replacement": {"without_replacement": 2.2, "traversal": 2.4},
}
ACCEPTED = {"spec_infer": 1.0, "traversal_iid": 1.25, "without_replacement": 1.5, "traversal": 3.0}
"""Drafted tokens a step on the same trees; of Traversal's the whole path."""


def fill(cells, *, recorded: bool = True) -> dict[str, str]:
    """A run of every rule; those that are rounds have the rules' rows, half a token more in the second conversation."""
    cells.experiment, ids = "bench/rules", {}
    for draws, mals in RULES.items():
        for rule, mal in mals.items():
            ids[rule] = cells.add("chain4", "chain", draws=draws, verifier=rule, mal=mal, **TREE)
        asked = {rule: ACCEPTED[rule] for rule in mals if rule in ACCEPTED}
        if recorded and asked:
            rounds = ids[next(iter(mals))]
            cells.store.write("rules", rounds, [*rows_of(cells, rounds, asked)])
    return ids


def rows_of(cells, run_id: str, accepted: dict[str, float]):
    steps = cells.store.read("steps", [run_id])
    for step in steps.itertuples():
        for rule, tokens in accepted.items():
            more = 0.5 * (step.prompt_id == "p1") * (tokens < 3)
            key = {"run_id": run_id, "prompt_id": step.prompt_id, "turn": step.turn, "step": step.step}
            yield RuleRow(**key, rule=rule, expected_accepted=tokens + more)


def values(cells, metric) -> dict[str, object]:
    """Of each rule the interval of a metric."""
    long = table_of("bench/rules", cells).long
    rows = long[long["metric"].isin([metric])]
    return dict(zip(rows["verifier"], rows["interval"], strict=True))


def means(cells) -> dict[str, float]:
    """Of each rule the new tokens a step."""
    found = cells.load()
    steps = found.steps.merge(found.runs[["run_id", "verifier"]], on="run_id")
    return steps.groupby("verifier")["acceptance_length"].mean().to_dict()


def test_on_the_same_trees_all_rules_are_the_sums_of_what_they_were_asked(cells):
    fill(cells)
    found = values(cells, EXPECTED)
    for rule, tokens in ACCEPTED.items():
        mean = tokens + 1 + 0.5 / 8 * (tokens < 3)  # one conversation of eight, of as many steps as the others
        assert found[rule].value == pytest.approx(mean)
        assert 1 <= found[rule].low <= found[rule].high <= TREE["depth"] + 1
    assert found["target_sample"] is None, "nobody asked"


def test_a_rule_stands_beside_rounds_of_its_draws_and_all_beside_spec_infers(cells):
    fill(cells)
    by_rule, by_draws = values(cells, BY_RULE), values(cells, BY_DRAWS)
    expected = {rule: tokens + 1 + 0.5 / 8 * (tokens < 3) for rule, tokens in ACCEPTED.items()}
    assert by_rule["traversal"].value == pytest.approx(expected["traversal"] / expected["without_replacement"])
    assert by_rule["traversal_iid"].value == pytest.approx(expected["traversal_iid"] / expected["spec_infer"])
    assert [by_rule[rule] for rule in ("target_sample", "spec_infer", "without_replacement")] == [None] * 3
    assert by_draws["spec_infer"] is None
    runs = means(cells)
    for rule in ("target_sample", "traversal_iid", "without_replacement", "traversal"):
        assert by_draws[rule].value == pytest.approx(runs[rule] / runs["spec_infer"])


def test_without_recorded_rules_nothing_is_said_of_the_same_trees(cells):
    fill(cells, recorded=False)
    for metric in (BY_RULE, EXPECTED):
        assert set(values(cells, metric).values()) == {None}


def test_greedy_runs_and_draws_of_other_kinds_are_not_among_them(cells):
    fill(cells)
    before = [*table_of("bench/rules", cells).long["run_id"].unique()]
    cells.add("chain4", "chain", draws="topk", verifier="greedy", temperature=0.0, conversations=8)
    cells.add("ti_mcsd", "target_init_mcsd", draws="target_topk", verifier="longest_subtree", **TREE)
    assert [*table_of("bench/rules", cells).long["run_id"].unique()] == before


def test_greedy_runs_alone_are_none(cells):
    cells.experiment = "bench/rules"
    cells.add("chain4", "chain", temperature=0.0)
    with pytest.raises(NoResultsError):
        outputs("bench/rules", cells)
