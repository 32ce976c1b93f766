"""Every metric against numbers worked out by hand, against a plain recomputation, and on nothing at all."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, NodeRow, PromptRow, StepRow
from specdec_trees.statistics import metrics


def step(prompt="a", turn=0, n=10, depth=4, expected=2.0, accepted=1, length=None, kept=None, **times):
    length = accepted + 1 if length is None else length
    seconds = {"draft_s": 0.04, "tree_s": 0.01, "score_s": 0.1, "judge_s": 0.02, "commit_s": 0.03} | times
    return StepRow(
        run_id="r", prompt_id=prompt, turn=turn, step=0, num_drafted=n, depth=depth, draft_forwards=depth,
        draft_tokens=n, expected_acceptance=expected, num_accepted=accepted, acceptance_length=length,
        kept=length if kept is None else kept, **seconds,
    )  # fmt: skip


def prompt(name="a", arm=METHOD, new=11, steps=4, decode=2.0, prefill=0.5, status="ok", turn=0):
    return PromptRow(
        run_id="r", prompt_id=name, category=None, turn=turn, arm=arm, status=status, error=None, num_prompt_tokens=7,
        num_new_tokens=new, num_decoded_tokens=max(new - 1, 0),
        num_steps=steps, finish="length", prefill_s=prefill, decode_s=decode, output_sha256="0",
        output_ids=[1], identical=None, first_divergence=None, divergence_gap=None,
    )  # fmt: skip


def node(edge_prob, accepted=False, parent_accepted=True):
    return NodeRow(
        run_id="r", prompt_id="a", turn=0, step=0, node=1, depth=1, edge_prob=edge_prob, path_prob=edge_prob,
        target_prob=0.5, parent_accepted=parent_accepted, accepted=accepted,
    )  # fmt: skip


STEPS = pd.DataFrame(
    [
        step("a", 0, n=10, depth=4, expected=3.4, accepted=2),
        step("a", 0, n=10, depth=3, expected=1.6, accepted=0),
        step("a", 1, n=6, depth=2, expected=2.5, accepted=2, length=2),  # ends in EOS: no bonus token
        step("b", 0, n=10, depth=5, expected=2.9, accepted=3, kept=2),  # clipped at the length limit
    ]
)
PROMPTS = pd.DataFrame(
    [
        prompt("a", METHOD, new=11, decode=2.0),
        prompt("b", METHOD, new=21, decode=3.0),
        prompt("c", METHOD, new=900, decode=1.0, status="failed"),
        prompt("a", AUTOREGRESSIVE, new=11, steps=10, decode=6.0),
        prompt("b", AUTOREGRESSIVE, new=31, steps=30, decode=10.0),
        prompt("c", AUTOREGRESSIVE, new=5, steps=1, decode=99.0, status="failed"),
    ]
)
NOTHING = [pd.DataFrame(), STEPS.iloc[:0]]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (metrics.mal, 10 / 4),
        (metrics.mal_prompt_mean, (2 + 2 + 4) / 3),
        (metrics.accepted_per_step, 7 / 4),
        (metrics.expected_acceptance, 10.4 / 4),
        (metrics.acceptance_rate_depth, 7 / 14),
        (metrics.acceptance_rate_node, 7 / 36),
        (metrics.draft_forward_s, 0.16 / 14),
    ],
)
def test_step_metrics_by_hand(metric, expected):
    assert metric(STEPS) == pytest.approx(expected)


def test_steps_without_probabilities_have_no_expected_acceptance():
    absent = pd.DataFrame([step(expected=None, accepted=accepted) for accepted in (0, 2)])
    for steps in (absent, absent.astype({"expected_acceptance": float})):
        assert math.isnan(metrics.expected_acceptance(steps))
        assert math.isnan(metrics.calibration(steps).gap)
        assert math.isnan(metrics.calibration(steps).correlation)
        assert metrics.expected_vs_actual(steps).empty
        assert metrics.mal(steps) == 2
    assert metrics.acceptance_frequency(pd.DataFrame([node(None), node(None, accepted=True)]))["count"].sum() == 0


def test_calibration_by_hand():
    expected, actual = [3.4, 1.6, 2.5, 2.9], [3, 1, 2, 4]
    covariance = sum((e - 2.6) * (a - 2.5) for e, a in zip(expected, actual, strict=True))
    scale = math.sqrt(sum((e - 2.6) ** 2 for e in expected) * sum((a - 2.5) ** 2 for a in actual))
    found = metrics.calibration(STEPS)
    assert (found.gap, found.correlation) == pytest.approx((0.1, covariance / scale))


def test_calibration_without_variation_has_no_correlation():
    # The mean of seven times 2.3 is not quite 2.3, so a plain formula finds a correlation of its rounding errors.
    found = metrics.calibration(pd.DataFrame([step(expected=2.3, accepted=accepted) for accepted in range(7)]))
    assert found.gap == pytest.approx(2.3 - 4)
    assert math.isnan(found.correlation)


def test_acceptance_by_depth_counts_only_trees_that_reach_the_depth():
    found = metrics.acceptance_by_depth(STEPS)
    assert list(found.index) == [1, 2, 3, 4, 5]
    assert list(found) == pytest.approx([3 / 4, 3 / 4, 1 / 3, 0, 0])


BELOW_TARGET = pd.DataFrame(  # trees of up to 4 draft levels below first tokens of the target's
    [
        step("a", depth=5, accepted=1, length=1),
        step("a", depth=5, accepted=5, length=5),
        step("b", depth=2, accepted=2, length=2),
        step("b", depth=4, accepted=3, length=3),
    ]
)


def test_the_first_token_of_the_target_counts_neither_as_accepted_nor_as_a_level():
    assert list(metrics.accepted_drafts(BELOW_TARGET, virtual=True)) == [0, 4, 1, 2]
    assert list(metrics.drafted_levels(BELOW_TARGET, virtual=True)) == [4, 4, 1, 3]
    assert metrics.alpha(BELOW_TARGET, 4, virtual=True) == pytest.approx(7 / 16)
    assert metrics.alpha_drafted(BELOW_TARGET, virtual=True) == pytest.approx(7 / 12)
    assert metrics.mal(BELOW_TARGET) == pytest.approx(1 + 4 * 7 / 16)


def test_alpha_of_trees_below_the_last_token_by_hand():
    static = pd.DataFrame([step(depth=4, accepted=accepted) for accepted in (0, 4, 1)])
    assert metrics.alpha(static, 4) == metrics.alpha_drafted(static) == pytest.approx(5 / 12)
    assert metrics.mal(static) == pytest.approx(1 + 4 * 5 / 12)


def test_a_path_that_ends_in_eos_has_no_bonus_token():
    ended = pd.DataFrame([step(depth=4, accepted=2, length=2), step(depth=4, accepted=2)])
    assert metrics.alpha(ended, 4) == pytest.approx(4 / 8)
    assert metrics.mal(ended) == pytest.approx(1 + 4 * 4 / 8 - 1 / 2)


@pytest.mark.parametrize("virtual", [False, True])
def test_alpha_drafted_is_at_least_alpha_and_equal_where_no_tree_ends_early(virtual):
    rng = np.random.default_rng(0)
    depths = rng.integers(1, 6, size=200) + virtual
    early = pd.DataFrame([step(depth=d, accepted=int(rng.integers(virtual, d + 1))) for d in depths])
    assert metrics.alpha_drafted(early, virtual=virtual) > metrics.alpha(early, 5, virtual=virtual)
    whole = early[early["depth"] == 5 + virtual]
    assert metrics.alpha_drafted(whole, virtual=virtual) == pytest.approx(metrics.alpha(whole, 5, virtual=virtual))


def test_without_draft_levels_there_is_no_alpha():
    bare = pd.DataFrame([step(n=0, depth=0, accepted=0)] * 3)
    assert math.isnan(metrics.alpha(bare, 0))
    assert math.isnan(metrics.alpha_drafted(bare))


def test_autoregressive_steps_draft_nothing():
    steps = pd.DataFrame([step(n=0, depth=0, expected=1.0, accepted=0)] * 3)
    assert metrics.mal(steps) == 1
    assert metrics.acceptance_by_depth(steps).empty
    for metric in (metrics.acceptance_rate_depth, metrics.acceptance_rate_node, metrics.draft_forward_s):
        assert math.isnan(metric(steps))


def test_speeds_by_hand():
    assert metrics.tokens_per_s(PROMPTS, METHOD) == pytest.approx((10 + 20) / 5)
    assert metrics.tokens_per_s(PROMPTS, AUTOREGRESSIVE) == pytest.approx((10 + 30) / 16)
    assert metrics.tokens_per_s_with_prefill(PROMPTS, METHOD) == pytest.approx((11 + 21) / 6)
    assert metrics.target_step_s(PROMPTS) == pytest.approx(16 / 40)
    assert metrics.cost_ratio(PROMPTS, STEPS) == pytest.approx((0.16 / 14) / (16 / 40))


def test_a_turn_of_one_token_decodes_nothing():
    only = pd.DataFrame([prompt(new=1, steps=0, decode=0.0), prompt(arm=AUTOREGRESSIVE, new=1, steps=0, decode=0.0)])
    assert math.isnan(metrics.tokens_per_s(only, METHOD))
    assert math.isnan(metrics.target_step_s(only))
    assert metrics.tokens_per_s_with_prefill(only, METHOD) == pytest.approx(2)


def test_phase_times_by_hand():
    steps = pd.DataFrame([step(tree_s=0.1), step(tree_s=0.3)])
    phases = {"tree": 0.2, "draft": 0.04, "score": 0.1, "judge": 0.02, "commit": 0.03}
    unknown = {"choice": 0, "sampling": 0, "layout": 0, "grown": 0.2}
    assert metrics.phase_times(steps).to_dict() == pytest.approx(phases | unknown)
    split = steps.assign(choice_s=[0.01, 0.03], sampling_s=0.04, layout_s=[0.02, None])
    parts = {"choice": 0.02, "sampling": 0.04, "layout": 0.01, "grown": 0.13}
    assert metrics.phase_times(split).to_dict() == pytest.approx(phases | parts)


def test_acceptance_frequency_bins_the_tested_nodes():
    nodes = [
        node(0.05),
        node(0.3, True),
        node(0.35),
        node(1.0, True),
        node(0.99, True),
        node(0.31, parent_accepted=False),
    ]
    found = metrics.acceptance_frequency(pd.DataFrame(nodes)).set_index("bin_centre")
    assert list(found.index) == pytest.approx([0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95])
    assert list(found["count"]) == [1, 0, 0, 2, 0, 0, 0, 0, 0, 2]
    assert found["frequency"].dropna().tolist() == [0, 0.5, 1]
    assert found["frequency"].isna().sum() == 7


def test_expected_vs_actual_counts_every_step_without_gaps():
    found = metrics.expected_vs_actual(STEPS)
    assert found.columns.tolist() == [1, 2, 3]
    assert found.index.tolist() == [1, 2, 3, 4]
    assert found.to_numpy().tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_a_plain_recomputation_agrees():
    rng = np.random.default_rng(0)
    rows = [
        step(f"p{rng.integers(5)}", int(rng.integers(2)), depth=int(rng.integers(2, 6)), accepted=int(rng.integers(3)))
        for _ in range(200)
    ]
    by_prompt: dict = {}
    for row in rows:
        by_prompt.setdefault((row.prompt_id, row.turn), []).append(row.acceptance_length)
    frame = pd.DataFrame(rows)
    lengths = [length for prompt_lengths in by_prompt.values() for length in prompt_lengths]
    assert metrics.mal(frame) == pytest.approx(sum(lengths) / 200)
    assert metrics.mal_prompt_mean(frame) == pytest.approx(np.mean([np.mean(found) for found in by_prompt.values()]))
    deep = [row.num_accepted >= 2 for row in rows if row.depth >= 2]
    assert metrics.acceptance_by_depth(frame)[2] == pytest.approx(sum(deep) / len(deep))


@pytest.mark.parametrize("nothing", NOTHING, ids=["no columns", "no rows"])
def test_nothing_gives_nan_and_never_an_error(nothing):
    numbers = [
        metric(nothing)
        for metric in (
            *(metrics.mal, metrics.mal_prompt_mean, metrics.accepted_per_step),
            *(metrics.expected_acceptance, metrics.acceptance_rate_depth, metrics.acceptance_rate_node),
            *(metrics.target_step_s, metrics.draft_forward_s, metrics.alpha_drafted),
        )
    ]
    numbers += [metrics.alpha(nothing, 4), metrics.alpha(nothing, 4, virtual=True)]
    numbers += [metrics.tokens_per_s(nothing, METHOD), metrics.tokens_per_s_with_prefill(nothing, METHOD)]
    numbers += [metrics.cost_ratio(nothing, nothing), metrics.calibration(nothing).gap, *metrics.phase_times(nothing)]
    assert all(math.isnan(number) for number in numbers)
    assert metrics.acceptance_by_depth(nothing).empty
    assert metrics.expected_vs_actual(nothing).empty
    assert metrics.acceptance_frequency(nothing.iloc[:0], bins=4)["count"].tolist() == [0, 0, 0, 0]


def outputs(*every, arm=METHOD, status="ok"):
    return pd.DataFrame([dataclasses.asdict(prompt(arm=arm, status=status)) | {"output_ids": ids} for ids in every])


def test_repeated_4grams_against_all_pairs_of_places():
    rng = np.random.default_rng(0)
    every = [rng.integers(0, 3, size).tolist() for size in (0, 3, 4, 5, 40, 300)]
    repeated = total = 0
    for ids in every:
        for place in range(len(ids) - 3):
            total += 1
            repeated += any(ids[earlier : earlier + 4] == ids[place : place + 4] for earlier in range(place))
    frame = outputs(*map(np.array, every))
    assert metrics.repeated_4grams(frame, METHOD) == repeated / total
    assert math.isnan(metrics.repeated_4grams(frame, AUTOREGRESSIVE))
    others = pd.concat([frame, outputs([5] * 9, status="failed"), outputs([5] * 103, arm=AUTOREGRESSIVE)])
    assert metrics.repeated_4grams(others, METHOD) == repeated / total
    assert metrics.repeated_4grams(others, AUTOREGRESSIVE) == 0.99


def test_repeated_4grams_of_short_outputs_are_not_known():
    assert math.isnan(metrics.repeated_4grams(outputs([1, 1, 1], []), METHOD))
    assert math.isnan(metrics.repeated_4grams(pd.DataFrame(), METHOD))
    assert metrics.repeated_4grams(outputs([1, 1, 1, 1]), METHOD) == 0.0
