"""How far a lossy rule is off: rows against an enumeration of all its decisions, and when they are written."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from cells import cell, execute, word_pair

from specdec_core import Sampling, TokenTree, Verdict, generate
from specdec_core.drafters import TokenGraph
from specdec_core.models import ModelOutput, Pair
from specdec_core.verifiers import GsdNondeterministic
from specdec_trees.measure import decoding, variation
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.to_rows import Rows
from specdec_trees.measure.variation import DrawnVariation, VariationRecorder
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.store import Store, load

TALK = Conversation("talk", ("w3 w1 w4", "w1 w5"))
LOSSY = ("drafter=gsd", "verifier=gsd_nondeterministic", "drafter.theta_prob=0")


@pytest.fixture(scope="module")
def pair() -> Pair:
    return word_pair()


def measured(pair: Pair, *overrides: str, **options: Any) -> Rows:
    rows = Rows()
    made = cell(*overrides, new=20, temperature=0.8)
    Measurement(made, pair, rows, Runtime(**options)).run(TALK)
    return rows


def enumerated(tree: TokenTree, p: torch.Tensor) -> torch.Tensor:
    """The distribution of the first token over all sets of nodes that may be accepted, one after the other."""
    parents, tokens = tree.parents.tolist(), tree.tokens.tolist()
    ratios = [min(1.0, float(p[parents[n], tokens[n]] / tree.edge_probs[n])) for n in range(1, tree.num_nodes)]
    probs = torch.zeros(p.shape[1], dtype=torch.float64)
    for accepted in product((False, True), repeat=len(ratios)):
        chance = 1.0
        for ratio, yes in zip(ratios, accepted, strict=True):
            chance *= ratio if yes else 1 - ratio
        path = max(_paths(0, parents, (True, *accepted)), key=len)  # of equally long ones the first
        if path:
            probs[tokens[path[0]]] += chance
        else:
            probs += chance * p[0]
    return probs


def _paths(node: int, parents: list[int], accepted: tuple[bool, ...]) -> list[list[int]]:
    """Accepted paths below a node, depth first."""
    found: list[list[int]] = [[]]
    for child in range(len(parents)):
        if parents[child] == node and accepted[child]:
            found += [[child, *path] for path in _paths(child, parents, accepted)]
    return found


@pytest.mark.parametrize("sampling", [Sampling(0.8), Sampling(0.7, 0.7), Sampling(0.0)])
def test_rows_are_half_the_distance_of_the_enumerated_distribution(sampling, pair):
    rule, expected = GsdNondeterministic(), []
    recorder = VariationRecorder("run", "talk", 1, rule.first_token_probs, sampling)

    def watch(tree: TokenTree, scored: ModelOutput, verdict: Verdict) -> None:
        recorder(tree, scored, verdict)
        p = sampling.probs(scored.logits).double()
        expected.append(float((enumerated(tree, p) - p[0]).abs().sum() / 2))

    drafter = TokenGraph(draft=pair.draft, k=2, tau=1, theta_prob=0, theta_sib=0, max_steps=3, verify_cap=8)
    generate(pair.target, drafter, rule, [3, 1], max_new_tokens=25, sampling=sampling, allow_lossy=True, watch=watch)
    assert [row.total_variation for row in recorder.rows] == pytest.approx(expected, abs=1e-6)
    assert [(row.prompt_id, row.turn, row.step) for row in recorder.rows] == [
        ("talk", 1, step) for step in range(len(expected))
    ]
    assert (max(expected) > 0.1) == (not sampling.greedy)
    assert all(0 <= value <= 1 for value in expected)


def test_a_virtual_roots_distribution_is_the_targets():
    """It comes with the sampling settings applied, and its row of logits is not looked at."""
    probs, known = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.2, 0.3, 0.5])
    recorder = VariationRecorder("run", "talk", 0, lambda *_: probs, Sampling(0.5))
    tree = TokenTree.root_only(0, torch.device("cpu"))
    recorder(tree, ModelOutput(torch.full((1, 3), torch.nan), None, known), Verdict(torch.tensor([0]), (), 1))
    assert recorder.rows[0].total_variation == pytest.approx(0.5)
    assert (recorder.rows[0].num_trees, recorder.rows[0].noise) == (1, 0)


@pytest.mark.long
def test_every_step_has_a_row_and_decodes_as_before(pair):
    plain, asked = measured(pair, *LOSSY), measured(pair, *LOSSY, record_variation=True)
    assert not len(plain.variation)
    assert [row.output_ids for row in asked.prompts] == [row.output_ids for row in plain.prompts]
    found = [(row.turn, row.step) for row in asked.variation]
    assert found == [(step.turn, step.step) for step in asked.steps]
    assert any(row.total_variation > 0 for row in asked.variation)
    both = measured(pair, *LOSSY, record_variation=True, record_nodes=True)
    assert (both.variation, both.nodes) == (asked.variation, measured(pair, *LOSSY, record_nodes=True).nodes)


def test_rules_that_give_no_account_cost_no_pass(pair, monkeypatch):
    decoded: list[object] = []
    original = decoding.generate
    monkeypatch.setattr(decoding, "generate", lambda *a, **o: decoded.append(o["watch"]) or original(*a, **o))
    assert not measured(pair, "drafter=gsd", "verifier=target_sample", record_variation=True).variation
    assert decoded == [None] * 4
    decoded.clear()
    measured(pair, *LOSSY, record_variation=True)
    assert len(decoded) == 6


def test_trees_that_are_drawn_have_none(pair):
    """A lossless rule's distribution for one drawn tree is not the target's either."""
    assert not measured(pair, "drafter=ssd_iid", *LOSSY[1:], record_variation=True).variation


@pytest.mark.long
def test_they_are_written_on_request_be_they_none(tmp_path):
    base = ("drafter=gsd", "decoding=t07_top_p07", "limit=1", "decoding.max_new_tokens=6", "runtime.baseline=false")
    short = (*base, "runtime.warmup_conversations=0")
    for verifier, lossless in (("gsd_nondeterministic", False), ("target_sample", True)):
        chosen = (*short, f"verifier={verifier}")
        folder, store = tmp_path / verifier, Store(tmp_path / verifier, "default")
        assert execute(folder, *chosen) == "ok"
        (run,) = store.read("runs")["run_id"]
        assert not store.has("variation", run)
        assert [execute(folder, *chosen, "record_variation=true") for _ in range(2)] == ["ok", "skipped"]
        found = load(folder, "default")
        assert len(found.variation) == (0 if lossless else len(found.steps))
        assert found.runs["lossless"].tolist() == [lossless]
        assert execute(folder, *chosen, "force=true") == "ok"
        assert store.has("variation", run), "what was recorded is recorded again"
        store.forget(run)
        assert not store.has("variation", run)


@pytest.mark.long
def test_the_draft_that_is_the_target_is_still_off(pair):
    """p = q: all children are accepted, and the longest path is no draw from p."""
    same = replace(pair, draft=word_pair().target)
    rows = measured(same, *LOSSY, "drafter.theta_sib=0", "drafter.draft_temperature=0.8", record_variation=True)
    assert max(row.total_variation for row in rows.variation) > 0.05


TARGET_INIT = ("drafter=ti_mcsd", "decoding=t07", "drafter.widths=[2,2,1]")


@pytest.mark.parametrize("rule", ["independent_longest", "longest_subtree"])
def test_trees_from_the_targets_distribution_are_drawn_many_times_for_the_first_step(pair, rule, monkeypatch):
    monkeypatch.setattr(variation, "TREES", 12)
    asked = (*TARGET_INIT, f"verifier={rule}")
    plain, rows = measured(pair, *asked), measured(pair, *asked, record_variation=True)
    assert [(row.turn, row.step, row.num_trees) for row in rows.variation] == [(0, 0, 12), (1, 0, 12)]
    assert all(0 < row.noise < 1 and 0 <= row.total_variation < 1 for row in rows.variation)
    assert [row.output_ids for row in rows.prompts] == [row.output_ids for row in plain.prompts]
    assert rows.variation == measured(pair, *asked, record_variation=True).variation, "the seeds are its own"


def test_with_one_first_token_there_is_none(pair):
    one = ("drafter.widths=[1,2,1]", "verifier=independent_longest")
    rows = measured(pair, *TARGET_INIT[:2], *one, record_variation=True).variation
    assert [(row.num_trees, row.noise) for row in rows] == [(1, 0), (1, 0)]
    assert [row.total_variation for row in rows] == pytest.approx([0, 0], abs=1e-12)


def test_at_temperature_0_trees_are_not_drawn_and_every_step_has_a_row(pair):
    asked = ("drafter=ti_mcsd", "decoding=greedy", "drafter.widths=[3,2,1]", "verifier=independent_longest")
    rows = Rows()
    Measurement(cell(*asked, new=20), pair, rows, Runtime(record_variation=True)).run(TALK)
    assert [(row.turn, row.step) for row in rows.variation] == [(step.turn, step.step) for step in rows.steps]
    assert {row.total_variation for row in rows.variation} <= {0.0, 1.0}
    assert {(row.num_trees, row.noise) for row in rows.variation} == {(1, 0.0)}
    ranks = [row.accepted_ranks[0] for row in rows.steps]
    # the first of the first tokens is the target's best
    assert [row.total_variation for row in rows.variation] == [float(rank > 0) for rank in ranks]
    assert max(ranks) > 0


def test_the_noise_is_what_a_rule_that_keeps_the_distribution_would_show():
    """A second draw that is as likely as the first: the distribution is the target's, and no tree tells so."""
    vocab, rng, found = 8, torch.Generator().manual_seed(0), []
    target = ModelOutput(torch.zeros(3, vocab), None, torch.full((vocab,), 1 / vocab))

    def second(tree: TokenTree, target: ModelOutput, sampling: Sampling) -> torch.Tensor:
        return torch.nn.functional.one_hot(tree.tokens[2], vocab).double()

    for _ in range(200):
        drawn = DrawnVariation(second, Sampling(1.0))
        while not drawn.done:
            first, other = torch.randperm(vocab, generator=rng)[:2].tolist()
            tree = TokenTree(torch.tensor([0, first, other]), torch.tensor([-1, 0, 0]), torch.ones(3))
            drawn(tree, target, Verdict(torch.tensor([0, 1]), (first,), None, target.root_probs))
        found.append(drawn.row("run", "talk", 0))
    shown, noise = (sum(getattr(row, name) for row in found) / len(found) for name in ("total_variation", "noise"))
    assert 0.05 < noise < 0.3
    assert shown == pytest.approx(noise, rel=0.05)
