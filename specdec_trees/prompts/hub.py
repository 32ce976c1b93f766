"""Datasets of the Hugging Face hub: one small adapter per schema, and one sentence for everything that can fail."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from specdec_core.models.fetch import patiently, work_offline_if_refused
from specdec_trees.names import unknown
from specdec_trees.prompts.conversations import Conversation, DatasetError, Publisher
from specdec_trees.prompts.streams import UNREACHED, Record, streamed

Adapter = Callable[[str, Iterable[Record]], Iterator[Conversation]]
"""(name of the dataset, hub records in order) -> conversations."""

ADAPTERS: dict[str, Adapter] = {}
PUBLISHERS: dict[str, Publisher] = {}
"""By the same names: the records of a publisher's own file, where they are those of the hub."""
PROMPT_IN_PART = ("humaneval", "mbpp")
"""Those whose own records have a `prompt` that is not all: there are tests, or a reference by another name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """Where a dataset lies on the hub: the arguments of `datasets.load_dataset`."""

    path: str
    split: str
    name: str | None = None
    revision: str | None = None
    streaming: bool = False


def hub_conversations(source: HubSource, adapter: str, dataset: str) -> Iterator[Conversation]:
    """Conversations of a hub dataset, read as they are asked for. DatasetError says what to do."""
    if adapter not in ADAPTERS:
        raise DatasetError(unknown("dataset adapter", adapter, ADAPTERS))
    try:
        yield from ADAPTERS[adapter](dataset, _records(source))
    except DatasetError:
        raise
    except KeyError as error:
        raise DatasetError(
            f"dataset {dataset}: a record of {source.path} has no field {error}, so its schema has changed;"
            f" pin it with ++dataset.hub.revision=... or give DATA_DIR=<folder with {dataset}.jsonl>"
        ) from error
    except Exception as error:  # the hub's clients raise a dozen unrelated types
        raise DatasetError(
            f"dataset {dataset}: {_reason(error, source)};"
            f" without the hub, give DATA_DIR=<folder with {dataset}.jsonl> (data_dir=... for specdec run)"
        ) from error


def _records(source: HubSource) -> Iterator[Record]:
    import datasets  # slow to import, and not needed for files
    from huggingface_hub import constants

    work_offline_if_refused()
    datasets.config.HF_HUB_OFFLINE |= constants.HF_HUB_OFFLINE  # it may have been read before
    asked = {"split": source.split, "revision": source.revision, "streaming": source.streaming}
    load = partial(patiently, lambda: datasets.load_dataset(source.path, source.name, **asked))
    yield from streamed(source.path, {"name": source.name, **asked}, load) if source.streaming else load()


def _reason(error: Exception, source: HubSource) -> str:
    text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    if "gated" in str(error).lower():
        page = f"https://huggingface.co/datasets/{source.path}"
        return f"{source.path} is gated: accept its terms at {page}, then `hf auth login`"
    if isinstance(error, UNREACHED) or "offline" in str(error).lower():
        return f"the hub cannot be reached ({text})"
    if isinstance(error, FileNotFoundError):
        return f"{source.path} is not on the hub, or needs a login (`hf auth login`)"
    return f"{source.path} cannot be loaded ({type(error).__name__}: {text})"


class Content(NamedTuple):
    """What one hub record says; without an id of its own it is known by its place."""

    turns: tuple[str, ...]
    reference: str | None = None
    category: str | None = None
    id: Any = None


def _each(convert: Callable[[Record], Content]) -> Callable[[Record], Content]:
    """Register a function of one record as the adapter of its name; records with a blank turn are passed over."""

    def adapter(dataset: str, records: Iterable[Record]) -> Iterator[Conversation]:
        for index, record in enumerate(records):
            turns, reference, category, own = convert(record)
            if all(turn.strip() for turn in turns):
                yield Conversation(f"{dataset}_{index if own is None else own}", turns, reference, category)

    def publisher(record: Record, number: int) -> dict[str, Any]:
        content = convert(record)
        return content._asdict() | {"turns": list(content.turns), "id": str(content.id or number)}

    ADAPTERS[convert.__name__], PUBLISHERS[convert.__name__] = adapter, publisher
    return convert


@_each
def mt_bench(record: Record) -> Content:
    """`HuggingFaceH4/mt_bench_prompts`: references, where there are any, are one per turn."""
    reference = json.dumps(record["reference"], ensure_ascii=False) if record["reference"] else None
    return Content(tuple(record["prompt"]), reference, record["category"], record["prompt_id"])


@_each
def gsm8k(record: Record) -> Content:
    """`openai/gsm8k`."""
    return Content((record["question"],), record["answer"])


@_each
def text(record: Record) -> Content:
    """Plain documents: `allenai/c4`, `Skylion007/openwebtext`."""
    return Content((record["text"],))


@_each
def cnn_dm(record: Record) -> Content:
    """`abisee/cnn_dailymail`: the article alone."""
    return Content((record["article"],), record["highlights"], id=record["id"])


@_each
def xsum(record: Record) -> Content:
    """`EdinburghNLP/xsum`: the article, then the instruction, worded as in the usual zero-shot files."""
    prompt = f"###\nArticle: {record['document']}\n\nSummarize the above article in 1 sentence.\n"
    return Content((prompt,), record["summary"], id=record["id"])


@_each
def alpaca(record: Record) -> Content:
    """`tatsu-lab/alpaca`: instruction, and input where there is one."""
    turn = "\n\n".join(part for part in (record["instruction"], record["input"]) if part)
    return Content((turn,), record["output"])


@_each
def triviaqa(record: Record) -> Content:
    """`mandarjoshi/trivia_qa`: the bare question; the reference lists every accepted answer."""
    answers = dict.fromkeys([record["answer"]["value"], *record["answer"]["aliases"]])
    return Content((record["question"],), " | ".join(answers), id=record["question_id"])


@_each
def wmt14(record: Record) -> Content:
    """`wmt/wmt14`, config de-en: from English to German, worded as in the usual prompt files."""
    pair = record["translation"]
    return Content((f"Translate the input English sentence into German.\nInput: {pair['en']}\nOutput: ",), pair["de"])


@_each
def humaneval(record: Record) -> Content:
    """`openai/openai_humaneval`: signature and docstring; the reference is the body."""
    return Content((record["prompt"],), record["canonical_solution"], id=record["task_id"])


@_each
def mbpp(record: Record) -> Content:
    """`google-research-datasets/mbpp`: the task and its tests (2108.07732, section 3); `sanitized` has a `prompt`."""
    tests, text = "\n".join(record["test_list"]), record.get("text") or record["prompt"]
    task = f"{text} Your code should pass these tests:\n\n{tests}"
    return Content((task,), record["code"], id=record["task_id"])


@_each
def math_500(record: Record) -> Content:
    """`HuggingFaceH4/MATH-500`: the category is the subject, the reference the final answer."""
    return Content((record["problem"],), record["answer"], record["subject"], record["unique_id"])


@_each
def aime(record: Record) -> Content:
    """`HuggingFaceH4/aime_2024`: the reference is the final answer."""
    return Content((record["problem"],), str(record["answer"]), id=record["id"])


@_each
def livecodebench(record: Record) -> Content:
    """LiveCodeBench's code generation: the question, and the code to begin with where there is any; no hidden tests."""
    starter = record["starter_code"].strip()
    task = f"Begin with this code:\n```python\n{starter}\n```" if starter else "Read from stdin and write to stdout."
    return Content((f"{record['question_content']}\n\n{task}",), None, record["difficulty"], record["question_id"])


@_each
def wmt14_de_en(record: Record) -> Content:
    """The same from German to English, worded as in Spec-Bench's files."""
    pair = record["translation"]
    return Content((f"Translate German to English: {pair['de']}",), pair["en"])


def wikitext(dataset: str, records: Iterable[Record]) -> Iterator[Conversation]:
    """`Salesforce/wikitext`: one line of an article per record; an article begins at its title, ` = Title = `."""
    articles = (article for article in _articles(record["text"] for record in records) if article.strip())
    for index, article in enumerate(articles):
        yield Conversation(f"{dataset}_{index}", (article.strip(),))


def _articles(lines: Iterable[str]) -> Iterator[str]:
    article = ""
    for line in lines:
        if re.fullmatch(r" = [^=].*[^=] = \n", line):
            yield article
            article = ""
        article += line
    yield article


ADAPTERS["wikitext"] = wikitext
