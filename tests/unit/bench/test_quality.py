"""ROUGE of answers: values by hand, which answers have them, and what is refused."""

import json
from pathlib import Path

import pytest
from cells import cell, execute, word_pair

from bench.cell import Runtime
from bench.datasets import Conversation, DatasetError
from bench.instrument_records import QualityRow
from bench.measurement import Measurement
from bench.quality import check_references, quality_rows, rouge
from bench.records import AUTOREGRESSIVE, METHOD
from bench.rows import Rows
from bench.store import Store, load

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
    (row,) = quality_rows("run", talk, 0, {METHOD: "one"}, spec)
    assert row.rouge1 is None
    with pytest.raises(DatasetError, match=f"record_quality=true needs answers .* dataset {dataset} has none"):
        check_references(spec, [talk])


def test_one_reference_is_enough():
    spec = cell("dataset=gsm8k", "drafter=chain4").dataset
    talks = [Conversation("a", ("x",)), Conversation("b", ("x",), reference="7")]
    check_references(spec, talks)
    with pytest.raises(DatasetError, match=r"none among its 1 conversations; take one .* such as xsum"):
        check_references(spec, talks[:1])


def test_rows_are_of_the_texts_that_were_decoded():
    pair, rows = word_pair(), Rows()
    talk = Conversation("talk", ("w3 w1 w4", "w1 w5"), reference="w3 w9")
    made = cell("drafter=chain4", dataset={"adapter": "xsum"})
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
    assert execute(Path(tmp_path / "mini"), *SHORT, "dataset=mini", "record_quality=true") == "failed"
    (row,) = Store(tmp_path / "mini", "default").read("runs").itertuples()
    assert row.error.startswith("record_quality=true needs answers to compare with, and dataset mini has none")
