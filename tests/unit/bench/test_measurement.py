"""Both arms on the same prompts, turn after turn: rows, audit, failures and random streams."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from cells import cell, word_pair

from specdec_core import CausalLM, Sampling, TokenTree, Verdict
from specdec_core.drafters import Autoregressive
from specdec_core.models import ModelOutput, Pair
from specdec_trees.measure import decoding, stalls
from specdec_trees.measure.audit import divergence
from specdec_trees.measure.cell import Cell, Runtime
from specdec_trees.measure.measurement import Measurement, beginning, first_prompts
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.blocks import Blocks
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, StepRow
from specdec_trees.results.ties import is_tie

ONE = Conversation("one", ("w3 w1 w4", "w1 w5"), category="words")
TWO = Conversation("two", ("w2 w7 w1 w8",))
LONG = Conversation("long", (" ".join(["w9"] * 300), "w1"))
LATE = Conversation("late", ("w6 w6", " ".join(["w9"] * 300), "w1"))


@pytest.fixture(scope="module")
def pair() -> Pair:
    return word_pair()


@pytest.fixture(scope="module")
def chain() -> Cell:
    return cell("drafter=chain4")


def measured(cell: Cell, pair: Pair, *conversations: Conversation, **options: Any) -> Rows:
    rows = Rows()
    measurement = Measurement(cell, pair, rows, Runtime(**options))
    for conversation in conversations:
        measurement.run(conversation)
    return rows


def outputs(rows: Rows) -> dict[tuple[str, int, str], list[int]]:
    return {(row.prompt_id, row.turn, row.arm): row.output_ids for row in rows.prompts}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[int], int]]:
    """Arm, prompt and seed of every decoding, in order."""
    seen: list[tuple[str, list[int], int]] = []
    original = decoding.generate

    def generate(target: CausalLM, drafter: Any, rule: Any, prompt_ids: list[int], **options: Any) -> Any:
        arm = AUTOREGRESSIVE if isinstance(drafter, Autoregressive) else METHOD
        seen.append((arm, list(prompt_ids), options["rng"].initial_seed()))
        return original(target, drafter, rule, prompt_ids, **options)

    monkeypatch.setattr(decoding, "generate", generate)
    monkeypatch.setattr(stalls, "REPEATS", 0)
    return seen


def test_both_arms_decode_the_same_prompts_and_the_history_is_the_methods(chain, pair, calls):
    rows = measured(chain, pair, ONE, TWO)
    first, second, other = (calls[start : start + 2] for start in (0, 2, 4))
    for turn in (first, second, other):
        assert {arm for arm, _, _ in turn} == {METHOD, AUTOREGRESSIVE}
        assert turn[0][1] == turn[1][1]
        assert turn[0][2] != turn[1][2], "the arms have random streams of their own"
    assert first[0][1] == [3, 1, 4]
    assert second[0][1] == [3, 1, 4, *outputs(rows)["one", 0, METHOD], 1, 5]
    assert other[0][1] == [2, 7, 1, 8]
    assert first[0][0] != second[0][0], "the arms take turns at going first"
    assert [row.num_prompt_tokens for row in rows.prompts] == [3, 3, 17, 17, 4, 4]
    assert {(row.category, row.status, row.error) for row in rows.prompts[:4]} == {("words", "ok", None)}


def test_sampled_history_is_the_methods_too(pair, calls):
    rows = measured(cell("drafter=chain4", temperature=1.0), pair, ONE)
    answers = outputs(rows)
    assert answers["one", 0, METHOD] != answers["one", 0, AUTOREGRESSIVE]
    assert calls[2][1] == calls[3][1] == [3, 1, 4, *answers["one", 0, METHOD], 1, 5]


def test_rows_agree_with_each_other(chain, pair):
    rows = measured(chain, pair, ONE, TWO)
    for prompt in rows.prompts:
        assert prompt.num_new_tokens == len(prompt.output_ids) == 12
        assert prompt.prefill_s > 0 < prompt.decode_s
        if prompt.arm == AUTOREGRESSIVE:
            assert prompt.num_steps == 11
            continue
        steps = [step for step in rows.steps if (step.prompt_id, step.turn) == (prompt.prompt_id, prompt.turn)]
        assert [step.step for step in steps] == list(range(prompt.num_steps))
        assert sum(step.kept for step in steps) == 11
        assert sum(s.draft_s + s.tree_s + s.score_s + s.judge_s + s.commit_s for s in steps) == pytest.approx(
            prompt.decode_s
        )
    assert {row.run_id for row in (*rows.prompts, *rows.steps)} == {chain.run_id}


@pytest.mark.parametrize("drafter", ["chain4", "opt_tree"])
def test_greedy_outputs_are_audited_as_identical(drafter, pair, tiny):
    for models, conversation in ((pair, ONE), (tiny, Conversation("text", ("def main():\n", "Why?")))):
        rows = measured(cell(f"drafter={drafter}"), models, conversation)
        assert {(row.identical, row.first_divergence, row.divergence_gap) for row in rows.prompts} == {
            (True, None, None)
        }
        for turn in (0, 1):
            hashes = [row.output_sha256 for row in rows.prompts if row.turn == turn]
            assert len(hashes) == 2 > len(set(hashes))


class Wrong:
    """Accepts the first drafted token whatever the target thinks of it, so that its output soon differs."""

    lossless_for: frozenset[str] = frozenset()

    def judge(self, tree: TokenTree, target: ModelOutput, sampling: Sampling, rng: torch.Generator) -> Verdict:
        token = int(tree.tokens[1])
        return Verdict(torch.tensor([0, 1]), (token,), int(target.logits[1].argmax()))


def test_outputs_that_differ_name_the_place_and_the_gap(chain, pair):
    rows = measured(cell("drafter=chain4", rule=Wrong(), allow_lossy=True), pair, TWO)
    by_arm = {row.arm: row for row in rows.prompts}
    ours, own = (by_arm[arm].output_ids for arm in (METHOD, AUTOREGRESSIVE))
    at = next(index for index in range(12) if ours[index] != own[index])
    assert (by_arm[METHOD].identical, by_arm[METHOD].first_divergence) == (False, at)
    with torch.inference_mode():
        logits = pair.target.model(torch.tensor([[2, 7, 1, 8, *own[:at]]])).logits[0, -1]
    assert int(logits.argmax()) == own[at]
    assert by_arm[METHOD].divergence_gap == pytest.approx(float(logits[own[at]] - logits[ours[at]]), abs=1e-4)
    assert by_arm[METHOD].largest_logit == pytest.approx(float(logits[[own[at], ours[at]]].abs().max()), abs=1e-4)
    assert by_arm[AUTOREGRESSIVE].identical is True
    assert rows.aggregates()["identical"] == 0


def test_a_missing_token_is_no_tie_and_a_bad_one_has_its_own_gap(pair):
    with torch.inference_mode():
        logits = pair.target.model(torch.tensor([[2, 7, 1]])).logits[0, -1]
    worst, *_, best = logits.argsort().tolist()
    for output, reference in (([5, 6], [5]), ([5], [5, 6])):
        parted = divergence(pair.target, [2, 7, 1], output, reference)
        assert (parted.at, parted.gap) == (1, math.inf)
        assert not is_tie(parted.gap, parted.largest_logit, "bfloat16")
    for output, reference in (([worst], [best]), ([best], [worst])):
        parted = divergence(pair.target, [2, 7, 1], output, reference)
        assert parted.gap == pytest.approx(float(logits[best] - logits[worst]), abs=1e-4)
    assert divergence(pair.target, [2, 7, 1], [best, 3], [best, 3]) is None


def test_no_audit_where_there_is_nothing_to_compare(chain, pair):
    sampled = measured(cell("drafter=chain4", temperature=0.7), pair, TWO)
    alone = measured(chain, pair, TWO, baseline=False)
    assert [row.arm for row in alone.prompts] == [METHOD]
    for row in (*sampled.prompts, *alone.prompts):
        assert (row.identical, row.first_divergence, row.divergence_gap) == (None, None, None)
    assert alone.aggregates()["speedup"] is None
    assert alone.aggregates()["mal"] >= 1


def test_a_prompt_that_is_too_long_is_a_failed_row_and_the_others_go_on(chain, pair):
    """A later turn that fails leaves those before it, and ends its conversation."""
    rows = measured(chain, pair, LONG, LATE, TWO)
    kept = {(row.prompt_id, row.turn, row.arm): row for row in rows.prompts}
    assert set(kept) == {
        ("long", 0, METHOD),
        ("late", 1, METHOD),
        *((name, 0, arm) for name in ("late", "two") for arm in (METHOD, AUTOREGRESSIVE)),
    }
    for key in (("long", 0, METHOD), ("late", 1, METHOD)):
        row = kept[key]
        assert (row.status, row.finish, row.output_ids, row.decode_s) == ("failed", "failed", [], 0)
        assert "the target has 256 positions" in row.error
        assert "12 more" in row.error
    assert {row.status for key, row in kept.items() if key[0] == "two"} == {"ok"}
    alone = measured(chain, pair, TWO)
    assert outputs(rows)["two", 0, METHOD] == outputs(alone)["two", 0, METHOD]


def test_failed_prompts_enter_no_average(chain, pair):
    rows = measured(chain, pair, LONG, TWO)
    found = rows.aggregates()
    assert (found["num_conversations"], found["num_failed"]) == (1, 1)
    rows.prompts[:] = [row for row in rows.prompts if row.prompt_id == "two"]
    assert rows.aggregates() == found | {"num_failed": 0}


def test_a_conversation_that_fails_in_its_second_turn_counts_in_nothing(chain, pair):
    rows = measured(chain, pair, LATE, TWO)
    found = rows.aggregates()
    assert found == measured_alike(rows, "two") | {"num_failed": 1}
    assert (found["num_conversations"], found["num_failed"]) == (1, 1)


def test_a_prompt_that_fits_the_target_and_not_the_draft_fails_with_the_drafts_reason(chain, pair):
    draft = word_pair(positions=64).draft
    rows = measured(chain, replace(pair, draft=draft), Conversation("mid", (" ".join(["w9"] * 60),)), TWO)
    (lost,) = (row for row in rows.prompts if row.status == "failed")
    assert (lost.prompt_id, lost.arm) == ("mid", METHOD)
    assert lost.error.startswith("the draft has 64 positions")


def measured_alike(rows: Rows, prompt_id: str) -> dict[str, Any]:
    """The averages of one conversation's rows alone."""
    prompts, steps = ([row for row in table if row.prompt_id == prompt_id] for table in (rows.prompts, rows.steps))
    return Rows(prompts=prompts, steps=Blocks(StepRow, steps)).aggregates()


def test_the_datasets_limit_on_all_tokens_shortens_the_answer(pair):
    limited = cell("drafter=chain4", dataset={"max_total_tokens": 9})
    rows = measured(limited, pair, TWO, ONE)
    by_key = {(row.prompt_id, row.turn, row.arm): row for row in rows.prompts}
    assert by_key["two", 0, METHOD].num_new_tokens == by_key["two", 0, AUTOREGRESSIVE].num_new_tokens == 5
    assert by_key["one", 0, METHOD].num_new_tokens == 6
    assert by_key["one", 1, METHOD].error == "the prompt has 11 tokens of 9 allowed in all"


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_random_streams_belong_to_the_prompt(temperature, pair):
    sampled = cell("drafter=branching_4_2_2_1_wor", temperature=temperature)
    both, alone = measured(sampled, pair, ONE, TWO), measured(sampled, pair, TWO)
    warm = Rows()
    started = Measurement(sampled, pair, warm, Runtime())
    started.warm_up(ONE)
    assert warm == Rows()
    started.run(TWO)
    first = {key: tokens for key, tokens in outputs(both).items() if key[0] == "two"}
    assert first == outputs(alone) == outputs(warm)
    assert len({tuple(tokens) for tokens in outputs(both).values()}) == 6


def test_the_same_text_under_another_id_is_sampled_anew(pair):
    twins = [Conversation(name, TWO.turns) for name in ("left", "right")]
    left, right = (outputs(measured(cell("drafter=chain4", temperature=1.0), pair, twin)) for twin in twins)
    assert all(left["left", 0, arm] != right["right", 0, arm] for arm in (METHOD, AUTOREGRESSIVE))


def test_the_seed_decides_what_is_sampled(pair):
    def sampled(seed: int) -> dict[tuple[str, int, str], list[int]]:
        return outputs(measured(cell("drafter=chain4", f"seed={seed}", temperature=1.0), pair, ONE, TWO))

    one, again, other = sampled(1), sampled(1), sampled(2)
    assert one == again
    assert all(one[key] != other[key] for key in one)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_that_ignore_eos_have_the_length_that_was_asked_for(temperature, pair):
    """And are those of a model that never ends; a prompt that ends with the token is no prompt to refuse."""
    free = outputs(measured(cell("drafter=chain4", temperature=temperature), pair, TWO))
    ended = word_pair(eos=free["two", 0, METHOD][5])
    stopped, ignoring = (
        measured(cell("drafter=chain4", f"decoding.ignore_eos={on}", temperature=temperature), ended, TWO)
        for on in (False, True)
    )
    row = next(row for row in stopped.prompts if row.arm == METHOD)
    assert (row.finish, row.num_new_tokens <= 6) == ("eos", True)
    assert outputs(ignoring) == free
    assert {(row.finish, row.num_new_tokens) for row in ignoring.prompts} == {("length", 12)}
    at_end = Conversation("end", (f"w3 w{free['two', 0, METHOD][5]}",))
    for on, status in ((True, "ok"), (False, "failed")):
        made = cell("drafter=chain4", f"decoding.ignore_eos={on}", temperature=temperature)
        assert {row.status for row in measured(made, ended, at_end).prompts} == {status}


def test_a_datasets_frame_is_around_every_turn_also_in_first_prompts(pair, calls):
    framed = cell("drafter=chain4", dataset={"frame": "w7 {text} w8"})
    rows = measured(framed, pair, ONE)
    assert calls[0][1] == [7, 3, 1, 4, 8]
    assert calls[2][1] == [7, 3, 1, 4, 8, *outputs(rows)["one", 0, METHOD], 7, 1, 5, 8]
    assert first_prompts(pair, framed.pair.template, framed.dataset, [ONE]) == [[7, 3, 1, 4, 8]]


@pytest.mark.parametrize(("given", "found"), [(7, [7]), ([7, 8], [7, 8]), (None, [])])
def test_the_tokens_that_end_an_answer(given, found):
    assert word_pair(eos=given).eos_token_ids == found


def test_eos_of_the_tokenizer_where_the_model_names_none(pair):
    free = outputs(measured(cell("drafter=chain4"), pair, TWO))["two", 0, METHOD]
    ended = word_pair()
    ended.tokenizer.eos_token = f"w{free[5]}"
    rows = measured(cell("drafter=chain4"), ended, TWO)
    assert {row.finish for row in rows.prompts} == {"eos"}
    assert {tuple(row.output_ids) for row in rows.prompts} == {tuple(free[: free.index(free[5]) + 1])}


def test_rows_hold_the_wall_time_of_both_arms(chain, pair):
    rows = measured(chain, pair, ONE, LONG).prompts
    assert all(row.decode_s <= row.wall_s + 1e-6 for row in rows)
    assert all((row.wall_s > 0) == (row.status == "ok") for row in rows)


@pytest.mark.parametrize(("baseline", "arm"), [(True, AUTOREGRESSIVE), (False, METHOD)])
def test_the_excerpt_is_of_the_first_answer_that_there_is(baseline, arm, chain, pair):
    rows = Rows()
    measurement = Measurement(chain, pair, rows, Runtime(baseline=baseline))
    assert measurement.excerpt() is None
    for conversation in (LONG, ONE, TWO):
        measurement.run(conversation)
    (ids,) = (row.output_ids for row in rows.prompts if (row.prompt_id, row.turn, row.arm) == ("one", 0, arm))
    assert measurement.excerpt() == " ".join(f"w{token}" for token in ids)


def test_an_excerpt_is_one_line_cut_behind_a_word():
    assert beginning("  two\n\n lines\t") == "two lines"
    text = "seven " * 40
    assert beginning(text) == " ".join(["seven"] * 32) + " ..."
    assert len(beginning("x" * 300)) == 200
    assert beginning("y" * 200) == "y" * 200
