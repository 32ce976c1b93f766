"""Quality of answers: ROUGE and log-likelihood by hand, which answers have them, and the answers as texts."""

import json
from dataclasses import replace

import pytest
import torch
from cells import cell, execute, word_pair

from specdec_core import Sampling, generate
from specdec_core.drafters import Autoregressive
from specdec_core.verifiers import TargetSample
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.decoding import Decoding
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.quality import log_likelihoods, quality_rows, reference_of, rouge
from specdec_trees.measure.second_pass import SecondPass
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.instrument_rows import QualityRow
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.results.store import load

MAT = "The cats sat on the mat."
SHORT = ("drafter=chain4", "limit=2", "decoding.max_new_tokens=30", "runtime.warmup_conversations=0")


@pytest.mark.parametrize(
    ("answer", "one", "two", "long"),
    [
        (MAT, 1, 1, 1),
        ("the CAT is on a mat", 4 / 6, 1 / 5, 4 / 6),  # the, cat, on, mat; "the cat"
        ("On a mat the cat is", 4 / 6, 1 / 5, 2 / 6),
        ("The cat sitting", 2 * 2 / (3 + 6), 2 * 1 / (2 + 5), 2 * 2 / (3 + 6)),  # sit is not sat
        ("cats", 2 / 7, 0, 2 / 7),
        ("", 0, 0, 0),
        ("...", 0, 0, 0),
    ],
)
def test_f1_by_hand(answer, one, two, long):
    assert rouge(MAT, answer) == pytest.approx({"rouge1": one, "rouge2": two, "rouge_l": long})


def test_f1_is_of_precision_and_recall_and_counts_words_as_often_as_they_occur():
    assert rouge("a b b c", "b b b")["rouge1"] == pytest.approx(2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))


def test_both_arms_are_scored_on_the_first_turn_alone():
    spec = cell("dataset=xsum", "drafter=chain4").dataset
    talk, none = Conversation("talk", ("x", "y"), reference=MAT), Conversation("none", ("x",))
    answers = {METHOD: MAT, AUTOREGRESSIVE: "On a mat"}
    method, base = quality_rows("run", talk, 0, answers, spec)
    assert method == QualityRow(
        run_id="run", prompt_id="talk", turn=0, arm=METHOD, num_words=6, rouge1=1, rouge2=1, rouge_l=1
    )
    assert (base.arm, base.num_words, base.rouge1) == (AUTOREGRESSIVE, 3, pytest.approx(4 / 9))
    for conversation, turn in ((talk, 1), (none, 0)):
        rows = list(quality_rows("run", conversation, turn, answers, spec))
        assert [(row.num_words, row.rouge1, row.rouge2, row.rouge_l) for row in rows] == [
            (6, None, None, None),
            (3, None, None, None),
        ]


@pytest.mark.parametrize("dataset", ["mt_bench", "triviaqa"])
def test_lists_of_references_are_no_answers(dataset):
    spec = cell(f"dataset={dataset}", "drafter=chain4").dataset
    talk = Conversation("talk", ("x",), reference='["one", "two"]')
    (row,) = quality_rows("run", talk, 0, {METHOD: "one"}, spec, greedy="one")
    assert (row.rouge1, row.greedy_rouge1, row.greedy_rouge_l) == (None, 1, 1)


def test_answers_are_set_against_the_greedy_one_on_every_turn():
    spec = cell("dataset=alpaca", "drafter=chain4").dataset
    talk = Conversation("talk", ("x", "y"))
    (row,) = quality_rows("run", talk, 1, {METHOD: "On a mat the cat is"}, spec, greedy=MAT, log_likelihoods={})
    assert (row.rouge1, row.greedy_rouge1, row.greedy_rouge2, row.greedy_rouge_l, row.log_likelihood) == (
        None, pytest.approx(4 / 6), pytest.approx(1 / 5), pytest.approx(2 / 6), None,
    )  # fmt: skip
    (row,) = quality_rows("run", talk, 1, {METHOD: "x"}, spec, greedy="", log_likelihoods={METHOD: -1.5})
    assert (row.greedy_rouge1, row.log_likelihood) == (None, -1.5)


@pytest.mark.parametrize(
    ("adapter", "reference", "found"),
    [
        ("mt_bench", '["4", " "]', ["4", None, None]),
        ("mt_bench", '["4", "5"]', ["4", "5", None]),
        ("mt_bench", '"4"', [None] * 3),
        ("mt_bench", "4, surely", ["4, surely", None, None]),
        ("mt_bench", None, [None] * 3),
        ("triviaqa", "Mars | The red planet", ["Mars | The red planet", None, None]),
        ("alpaca", "4", ["4", None, None]),
    ],
)
def test_references_for_readers(adapter, reference, found):
    spec = replace(cell("dataset=alpaca", "drafter=chain4").dataset, adapter=adapter)
    talk = Conversation("talk", ("x", "y", "z"), reference=reference)
    assert [reference_of(talk, turn, spec) for turn in range(3)] == found


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.7, top_p=0.5), Sampling(0.0)])
def test_log_likelihood_is_that_of_a_plain_forward(sampling):
    """Against the stock model's own forward over prompt and answer, token by token."""
    pair, prompt = word_pair(), [3, 1, 4]
    outputs = {METHOD: [5, 9, 2, 6], AUTOREGRESSIVE: [7], "none": []}
    found = log_likelihoods(pair.target, prompt, outputs, sampling)
    for arm in (METHOD, AUTOREGRESSIVE):
        tokens = torch.tensor([[*prompt, *outputs[arm]]])
        with torch.inference_mode():
            logits = pair.target.model(tokens).logits[0].double() / (sampling.temperature or 1.0)
        each = [
            float(logits[len(prompt) + place - 1].log_softmax(-1)[token]) for place, token in enumerate(outputs[arm])
        ]
        assert found[arm] == pytest.approx(sum(each) / len(each), abs=1e-5)
    assert found["none"] is None
    assert found[METHOD] != pytest.approx(found[AUTOREGRESSIVE], abs=1e-3)


def test_rows_are_of_the_texts_that_were_decoded():
    pair, rows = word_pair(), Rows()
    talk = Conversation("talk", ("w3 w1 w4", "w1 w5"), reference="w3 w9")
    made = cell("drafter=chain4", "dataset=xsum")
    Measurement(made, pair, rows, Runtime(record_quality=True)).run(talk)
    decoded = {(row.turn, row.arm): pair.tokenizer.decode(row.output_ids) for row in rows.prompts}
    assert {(row.turn, row.arm) for row in rows.quality} == set(decoded)
    for row in rows.quality:
        text = decoded[row.turn, row.arm]
        assert row.num_words == len(text.split()) == 12
        assert row.rouge1 == (None if row.turn else rouge("w3 w9", text)["rouge1"])
    alone = Rows()
    Measurement(made, pair, alone, Runtime(record_quality=True, baseline=False)).run(talk)
    assert {row.arm for row in alone.quality} == {METHOD}


def test_a_run_with_references_and_one_without(tmp_path):
    references = {"a": "Return the items of the file.", "b": None}
    lines = ({"id": name, "turns": [f"def {name}():"], "reference": found} for name, found in references.items())
    (tmp_path / "xsum.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    asked = (*SHORT, "dataset=xsum", f"data_dir={tmp_path}", "record_quality=true")
    results = tmp_path / "results"
    assert [execute(results, *asked) for _ in range(2)] == ["ok", "skipped"]
    quality = load(results, "default").quality.set_index(["prompt_id", "arm"])
    assert len(quality) == 4
    assert quality.loc["a", ["rouge1", "rouge2", "rouge_l"]].notna().all(axis=None)
    assert quality.loc["b", ["rouge1", "rouge2", "rouge_l"]].isna().all(axis=None)
    assert quality.loc[("a", METHOD)].equals(quality.loc[("a", AUTOREGRESSIVE)]), "greedy outputs are the same"
    found = quality[["log_likelihood", "greedy_rouge1"]]
    assert found.notna().all(axis=None)
    assert (quality["greedy_rouge1"] == 1).all(), "at temperature 0 both are the greedy answer"


def test_the_log_likelihood_and_the_greedy_answer_are_the_cells(monkeypatch):
    """Sampled arms against a greedy decoding of the same prompt, and the log-likelihood of their own tokens."""
    pair, rows = word_pair(), Rows()
    made = cell("drafter=chain4", temperature=0.8)
    Measurement(made, pair, rows, Runtime(record_quality=True)).run(Conversation("talk", ("w3 w1 w4", "w1 w5")))
    outputs = {(row.turn, row.arm): row for row in rows.prompts}
    assert len(rows.quality) == 4
    for row in rows.quality:
        prompt = [3, 1, 4] if row.turn == 0 else [3, 1, 4, *outputs[0, METHOD].output_ids, 1, 5]
        own = outputs[row.turn, row.arm].output_ids
        greedy = generate(pair.target, Autoregressive(), TargetSample(), prompt, max_new_tokens=12).tokens
        expected = rouge(pair.tokenizer.decode(greedy), pair.tokenizer.decode(own))
        assert row.greedy_rouge_l == pytest.approx(expected["rouge_l"])
        likelihoods = log_likelihoods(pair.target, prompt, {"own": own}, Sampling(0.8))
        assert row.log_likelihood == pytest.approx(likelihoods["own"], abs=1e-6)


def test_a_dataset_without_references_has_the_other_columns(tmp_path):
    assert execute(tmp_path, *SHORT, "dataset=mini", "record_quality=true", "record_answers=true") == "ok"
    found = load(tmp_path, "default")
    assert found.quality["rouge1"].isna().all()
    assert found.quality[["greedy_rouge_l", "log_likelihood"]].notna().all(axis=None)
    assert len(found.answers) == len(found.quality) == 8, "two turns in two arms"
    assert found.answers["question"].str.len().min() > 0


def test_the_targets_conversation_is_its_own():
    """Its second answer follows its first, not the method's."""
    pair, rows = word_pair(), Rows()
    talk = Conversation("talk", ("w3 w1 w4", "w1 w5"), reference='["w1", "w2"]')
    made = cell("drafter=chain4", "dataset=mt_bench", temperature=0.8)
    measurement = Measurement(made, pair, rows, Runtime(record_answers=True))
    measurement.run(talk)
    answers = {(row.turn, row.arm): row for row in rows.answers}
    decoded = {(row.turn, row.arm): pair.tokenizer.decode(row.output_ids) for row in rows.prompts}
    assert len(answers) == 4
    assert [answers[turn, METHOD].answer for turn in (0, 1)] == [decoded[turn, METHOD] for turn in (0, 1)]
    assert answers[0, AUTOREGRESSIVE].answer == decoded[0, AUTOREGRESSIVE] != decoded[0, METHOD]
    alone = measurement.decoding.turn(talk, 1, [decoded[0, AUTOREGRESSIVE]])
    expected = measurement.decoding.text(measurement.decoding.decode(alone, AUTOREGRESSIVE))
    assert answers[1, AUTOREGRESSIVE].answer == expected != decoded[1, AUTOREGRESSIVE]
    assert [(row.question, row.reference) for row in rows.answers if row.arm == METHOD] == [
        ("w3 w1 w4", "w1"),
        ("w1 w5", "w2"),
    ]
    single = Rows()
    Measurement(made, pair, single, Runtime(record_answers=True, baseline=False)).run(talk)
    assert {row.arm for row in single.answers} == {METHOD}


def test_greedy_arms_that_agree_are_not_decoded_again(monkeypatch):
    """The target's conversation is then the method's."""
    seen: list[str] = []
    original = Decoding.decode
    monkeypatch.setattr(
        Decoding, "decode", lambda self, turn, arm, *a, **o: seen.append(arm) or original(self, turn, arm, *a, **o)
    )
    rows = Rows()
    Measurement(cell("drafter=chain4"), word_pair(), rows, Runtime(record_answers=True)).run(
        Conversation("talk", ("w3 w1 w4", "w1 w5"))
    )
    assert sorted(seen) == [AUTOREGRESSIVE] * 2 + [METHOD] * 2
    assert len(rows.answers) == 4


def test_a_target_that_runs_out_of_room_has_no_later_answer():
    """Its own first answer may be longer than the method's: the prompt of the next turn then does not fit."""
    rows = Rows()
    pass_two = SecondPass(Decoding(cell("drafter=chain4"), word_pair(), Runtime(record_answers=True)), rows)
    long = " ".join(["w9"] * 300)
    pass_two.answers(Conversation("talk", ("w3", "w1")), ["w5", "w6"], [long, "w7"])
    assert [(row.turn, row.arm) for row in rows.answers] == [(0, METHOD), (0, AUTOREGRESSIVE), (1, METHOD)]
