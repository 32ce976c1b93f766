from dataclasses import replace

import datasets as hub
import pytest
from cells import config
from datasets.exceptions import DatasetNotFoundError
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import httpx
from omegaconf import OmegaConf

from specdec_trees.configs.cells import cell_of
from specdec_trees.locations import CONF
from specdec_trees.prompts import export
from specdec_trees.prompts.datasets import (
    CANDIDATES,
    Conversation,
    DatasetError,
    DatasetSpec,
    HubSource,
    load,
    source_id,
)
from specdec_trees.prompts.hub import ADAPTERS

QUIZ = DatasetSpec(
    name="quiz",
    hub=HubSource(path="some/quiz", name="main", split="test", streaming=True),
    adapter="gsm8k",
    max_new_tokens=64,
)


@pytest.fixture
def on_hub(monkeypatch, tmp_path):
    """Answer `load_dataset` with records, or raise an error; the calls are kept."""
    calls = []
    monkeypatch.setattr(hub.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def answer(result):
        def load_dataset(*args, **kwargs):
            calls.append((args, kwargs))
            if isinstance(result, Exception):
                raise result
            return iter(result)

        monkeypatch.setattr(hub, "load_dataset", load_dataset)
        return calls

    return answer


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (ConnectionError("Couldn't reach 'some/quiz' on the Hub (LocalEntryNotFoundError)"), "cannot be reached"),
        (httpx.ConnectError("[Errno 111] Connection refused"), "cannot be reached"),
        (OfflineModeIsEnabled("Offline mode is enabled.\nMore."), "cannot be reached"),
        (LocalEntryNotFoundError("No local entry; offline"), "cannot be reached"),
        (
            DatasetNotFoundError("Dataset 'some/quiz' is a gated dataset on the Hub. Visit it."),
            "accept its terms at http",
        ),
        (DatasetNotFoundError("Dataset 'some/quiz' doesn't exist on the Hub or cannot be accessed."), "hf auth login"),
        (RuntimeError("Dataset scripts are no longer supported, but found quiz.py"), "scripts are no longer supported"),
        (ValueError("BuilderConfig 'main' not found. Available: ['a', 'b']"), "BuilderConfig 'main' not found"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(on_hub, error, advice):
    on_hub(error)
    with pytest.raises(DatasetError, match=rf"dataset quiz: .*{advice}.*DATA_DIR=<folder with quiz\.jsonl>") as caught:
        load(QUIZ)
    assert "\n" not in str(caught.value)


def test_hub_records_are_read_only_as_far_as_needed(on_hub):
    """A limit takes a sample of the first 2,000, or as many as it is itself."""

    def records(end):
        for number in range(end):
            yield {"question": f"What is {number}?", "answer": f"#### {number}"}
        raise ConnectionError("read too far")

    calls = on_hub(records(CANDIDATES))
    found = load(QUIZ, limit=3)
    numbers = [int(conversation.id.removeprefix("quiz_")) for conversation in found]
    assert numbers == sorted(numbers)
    assert numbers[-1] > 3
    assert found[2] == Conversation(f"quiz_{numbers[2]}", (f"What is {numbers[2]}?",), f"#### {numbers[2]}")
    on_hub(records(CANDIDATES + 5))
    assert [found.id for found in load(QUIZ, limit=CANDIDATES + 5)][-1] == f"quiz_{CANDIDATES + 4}"
    assert calls == [(("some/quiz", "main"), {"split": "test", "revision": None, "streaming": True})] * 2
    assert source_id(QUIZ) == "hub:some/quiz/main/test@main"


def test_a_dataset_is_written_as_the_file_that_data_dir_reads(on_hub, tmp_path, capsys):
    calls = on_hub([{"question": f"What is {number}, über all?", "answer": f"#### {number}"} for number in range(300)])
    assert export.main(["gsm8k", "--out", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'data' / 'gsm8k.jsonl'}: 300 conversations\n"
    assert calls[0][0] == ("openai/gsm8k", "main")
    spec = DatasetSpec.from_config(OmegaConf.to_container(OmegaConf.load(CONF / "dataset" / "gsm8k.yaml")))
    on_hub([{"question": f"What is {number}, über all?", "answer": f"#### {number}"} for number in range(300)])
    assert load(spec, data_dir=tmp_path / "data", limit=7) == load(spec, limit=7)
    for name, said in (("gsm8k", "is there already"), ("mini", "unknown dataset of the hub"), ("gsm8", "gsm8k")):
        assert export.main([name, "--out", str(tmp_path / "data")]) == 2
        assert said in capsys.readouterr().err


def test_every_dataset_of_the_hub_can_be_exported():
    names = {path.stem for path in (CONF / "dataset").glob("*.yaml") if export.config_of(path.stem).get("hub")}
    assert {"mt_bench", "cnn_dm", "wikitext", "openwebtext"} <= names
    assert {DatasetSpec.from_config(export.config_of(name)).name for name in names} >= {"cnn_dm", "openwebtext"}


@pytest.mark.parametrize("name", ["gsm8k", "xsum"])
def test_the_advice_for_a_changed_schema_is_an_option_with_and_without_a_revision(on_hub, name):
    on_hub([{"Question": "?", "answer": ""}])
    with pytest.raises(DatasetError, match="no field") as caught:
        load(cell_of(config(f"dataset={name}")).dataset)
    option = str(caught.value).partition("pin it with ")[2].partition("...")[0]
    assert cell_of(config(f"dataset={name}", f"{option}abc")).dataset.hub.revision == "abc"


def test_a_changed_schema_and_an_unknown_adapter(on_hub):
    on_hub([{"Question": "?", "answer": ""}])
    with pytest.raises(DatasetError, match="no field 'question'"):
        load(QUIZ)
    with pytest.raises(DatasetError, match='did you mean "gsm8k"'):
        load(replace(QUIZ, adapter="gsm8"))


ARTICLE = [
    " = Ada = \n",
    "",
    " Ada wrote notes . \n",
    " = = Life = = \n",
    " Long ago . \n",
    " = Bob = \n",
    " Bob did not . \n",
]


@pytest.mark.parametrize(
    ("adapter", "records", "expected"),
    [
        (
            "mt_bench",
            [{"prompt": ["Hi", "Ho"], "reference": ["1", "2"], "category": "math", "prompt_id": 12}],
            Conversation("quiz_12", ("Hi", "Ho"), '["1", "2"]', "math"),
        ),
        ("text", [{"text": " \n"}, {"text": "Once", "timestamp": 0, "url": "u"}], Conversation("quiz_1", ("Once",))),
        (
            "cnn_dm",
            [{"article": "News", "highlights": "Short", "id": "f00"}],
            Conversation("quiz_f00", ("News",), "Short"),
        ),
        (
            "xsum",
            [{"document": "News", "summary": "Short", "id": "9"}],
            Conversation("quiz_9", ("###\nArticle: News\n\nSummarize the above article in 1 sentence.\n",), "Short"),
        ),
        (
            "alpaca",
            [{"instruction": "Sort", "input": "b a", "output": "a b", "text": ""}],
            Conversation("quiz_0", ("Sort\n\nb a",), "a b"),
        ),
        ("alpaca", [{"instruction": "Sing", "input": "", "output": "la"}], Conversation("quiz_0", ("Sing",), "la")),
        (
            "triviaqa",
            [{"question": "Who?", "question_id": "q1", "answer": {"value": "Ada", "aliases": ["Lovelace", "Ada"]}}],
            Conversation("quiz_q1", ("Who?",), "Ada | Lovelace"),
        ),
        (
            "wmt14",
            [{"translation": {"de": "Hallo", "en": "Hello"}}],
            Conversation(
                "quiz_0", ("Translate the input English sentence into German.\nInput: Hello\nOutput: ",), "Hallo"
            ),
        ),
        (
            "livecodebench",
            [{"question_content": "Add.", "starter_code": "", "difficulty": "easy", "question_id": "a1"}],
            Conversation("quiz_a1", ("Add.\n\nRead from stdin and write to stdout.",), None, "easy"),
        ),
        (
            "wmt14_de_en",
            [{"translation": {"de": "Hallo", "en": "Hello"}}],
            Conversation("quiz_0", ("Translate German to English: Hallo",), "Hello"),
        ),
        (
            "wikitext",
            [{"text": line} for line in ARTICLE],
            Conversation("quiz_0", ("= Ada = \n Ada wrote notes . \n = = Life = = \n Long ago .",)),
        ),
    ],
)
def test_adapters(adapter, records, expected):
    assert next(ADAPTERS[adapter]("quiz", records)) == expected


def test_wikitext_finds_every_article():
    found = list(ADAPTERS["wikitext"]("quiz", [{"text": line} for line in ARTICLE]))
    assert [conversation.turns[0].splitlines()[0] for conversation in found] == ["= Ada = ", "= Bob = "]
