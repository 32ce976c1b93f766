"""Datasets of the hub as their publishers lay them out, with a few invented texts.

Which files a publisher has was written down without a hub at hand.
"""

import gzip
import io
import json
from typing import Any

import pandas as pd
import yaml
from served import Repository

ROWS = 5
PAGES = [f"Page {number}. " + f"The river has {number} bridges and no ferry. " * 30 for number in range(ROWS)]
SHORT = "Too short."


def parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pd.DataFrame(rows).to_parquet(file)
    return file.getvalue()


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def card(configs: dict[str, dict[str, str]], **more: Any) -> bytes:
    """README.md: of each config, the files of its splits."""
    listed = [
        {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in files.items()]}
        for name, files in configs.items()
    ]
    return f"---\n{yaml.safe_dump({'configs': listed, **more})}---\n".encode()


def gsm8k() -> Repository:
    rows = [{"question": f"What is {n} plus {n}?", "answer": f"Twice {n}. #### {2 * n}"} for n in range(ROWS)]
    other = [{"question": "Of another config?", "answer": "#### 0"}]
    files = {
        f"{config}/{split}-00000-of-00001.parquet": parquet(rows if config == "main" and split == "test" else other)
        for config in ("main", "socratic")
        for split in ("train", "test")
    }
    told = {config: {split: f"{config}/{split}-*" for split in ("train", "test")} for config in ("main", "socratic")}
    return Repository({"README.md": card(told)} | files)


def c4() -> Repository:
    rows = [{"text": text, "timestamp": "2019-04-25T12:57:54Z", "url": "https://a"} for text in (SHORT, *PAGES)]
    parts = [rows[:4], rows[4:]]
    files = {f"en/c4-validation.{n:05}-of-00002.json.gz": gzip.compress(lines(part)) for n, part in enumerate(parts)}
    files |= {"en/c4-train.00000-of-01024.json.gz": gzip.compress(lines([rows[0]]))}
    files |= {
        "realnewslike/c4-validation.00000-of-00001.json.gz": gzip.compress(lines([{"text": "Of another config."}]))
    }
    told = {
        name: {split: f"{name}/c4-{split}.*.json.gz" for split in ("train", "validation")}
        for name in ("en", "realnewslike")
    }
    return Repository({"README.md": card(told)} | files)


def mt_bench() -> Repository:
    """A card without configs, and one file of lines."""
    rows = [
        {
            "prompt_id": 81 + n,
            "category": ("writing", "math")[n % 2],
            "prompt": [f"First {n}.", f"Then {n}."],
            "reference": [f"Answer {n}.", "The other."] if n % 2 else [],
        }
        for n in range(ROWS)
    ]
    return Repository({"README.md": b"---\nlicense: apache-2.0\n---\n", "raw/question.jsonl": lines(rows)})


def alpaca() -> Repository:
    """A card with features and sizes, which loading checks."""
    rows = [
        {"instruction": f"Sort list {n}.", "input": "" if n % 2 else f"c a {n}", "output": f"a c {n}", "text": "x"}
        for n in range(ROWS)
    ]
    features = [{"name": name, "dtype": "string"} for name in rows[0]]
    info = {"features": features, "splits": [{"name": "train", "num_bytes": 1, "num_examples": ROWS}]}
    told = card({"default": {"train": "data/train-*"}}, dataset_info=info | {"download_size": 1, "dataset_size": 1})
    return Repository({"README.md": told, "data/train-00000-of-00001-a09b74b3ef9c3b56.parquet": parquet(rows)})


def cnn_dm() -> Repository:
    rows = [{"article": text, "highlights": f"News {n}.", "id": f"f{n:03}"} for n, text in enumerate(PAGES)]
    old = [{"article": "Of version 1. " * 60, "highlights": "Old.", "id": "old"}]
    told = {version: {"test": f"{version}/test-*"} for version in ("1.0.0", "3.0.0")}
    files = {"1.0.0/test-00000-of-00001.parquet": parquet(old), "3.0.0/test-00000-of-00001.parquet": parquet(rows)}
    return Repository({"README.md": card(told)} | files)


def script(name: str) -> dict[str, bytes]:
    """`main` of a dataset that is a script, which is never run."""
    return {"README.md": b"---\nlicense: unknown\n---\n", f"{name}.py": b"raise SystemExit(1)"}


def xsum() -> Repository:
    rows = [{"document": text, "summary": f"Rivers {n}.", "id": f"{n}"} for n, text in enumerate(PAGES)]
    other = parquet([{"document": "Of another split.", "summary": "-", "id": "-"}])
    files = {f"default/{split}/0000.parquet": other for split in ("train", "validation")}
    files |= {"default/test/0000.parquet": parquet(rows)}
    return Repository(script("xsum"), branches={"refs/convert/parquet": files})


def openwebtext() -> Repository:
    """Larger than what the hub converts, so that its branch has a part."""
    halves = [parquet([{"text": text} for text in part]) for part in ((SHORT, *PAGES[:2]), PAGES[2:])]
    files = {f"plain_text/partial-train/{n:04}.parquet": half for n, half in enumerate(halves)}
    return Repository(script("openwebtext"), branches={"refs/convert/parquet": files})


def triviaqa() -> Repository:
    def row(n: int) -> dict[str, Any]:
        answer = {
            "aliases": [f"Alias {n}", f"Town {n}"],
            "normalized_aliases": [f"town {n}"],
            "type": "WikipediaEntity",
        }
        answer |= {"matched_wiki_entity_name": "", "normalized_value": f"town {n}", "value": f"Town {n}"}
        pages = {"doc_source": [], "filename": [], "title": [], "wiki_context": []}
        return {
            "question": f"Which town has {n} gates?",
            "question_id": f"tc_{n}",
            "question_source": "-",
            "entity_pages": pages,
            "answer": answer,
        }

    told = {name: {"validation": f"{name}/validation-*"} for name in ("rc", "rc.nocontext")}
    files = {f"{name}/validation-00000-of-00001.parquet": parquet([row(n) for n in range(ROWS)]) for name in told}
    return Repository({"README.md": card(told)} | files)


def wikitext() -> Repository:
    rows = [line for n, page in enumerate(PAGES) for line in ("", f" = Town {n} = \n", "", f" {page} \n")]
    told = {name: {"test": f"{name}/test-*"} for name in ("wikitext-103-raw-v1", "wikitext-2-v1")}
    files = {f"{name}/test-00000-of-00001.parquet": parquet([{"text": line} for line in rows]) for name in told}
    return Repository({"README.md": card(told)} | files)


def wmt14() -> Repository:
    rows = [{"translation": {"de": f"Satz {n}.", "en": f"Sentence {n}."}} for n in range(ROWS)]
    type_ = [{"name": "translation", "dtype": {"translation": {"languages": ["de", "en"]}}}]
    info = [
        {"config_name": "de-en", "features": type_, "splits": [{"name": "test", "num_examples": ROWS, "num_bytes": 1}]}
    ]
    told = card({"de-en": {"test": "de-en/test-*"}, "fr-en": {"test": "fr-en/test-*"}}, dataset_info=info)
    return Repository({"README.md": told, "de-en/test-00000-of-00001.parquet": parquet(rows)})


def humaneval() -> Repository:
    rows = [
        {
            "task_id": f"HumanEval/{n}",
            "prompt": f"def add_{n}(x):\n    # {n} more\n",
            "canonical_solution": f"    return x + {n}\n",
            "test": "def check(candidate):\n    assert candidate(0) == 0\n",
            "entry_point": f"add_{n}",
        }
        for n in range(ROWS)
    ]
    told = card({"openai_humaneval": {"test": "openai_humaneval/test-*"}})
    return Repository({"README.md": told, "openai_humaneval/test-00000-of-00001.parquet": parquet(rows)})


def mbpp() -> Repository:
    """Two configs with other columns, of which one is read."""
    rows = [
        {
            "task_id": 11 + n,
            "text": f"Write a function that adds {n}.",
            "code": f"def add(x): return x + {n}",
            "test_list": [f"assert add(0) == {n}", f"assert add(1) == {n + 1}"],
            "test_setup_code": "",
            "challenge_test_list": [],
        }
        for n in range(ROWS)
    ]
    other = [{"source_file": "-", "task_id": 1, "prompt": "Of another config.", "code": "-", "test_list": ["-"]}]
    files = {f"{name}/test-00000-of-00001.parquet": parquet(of) for name, of in (("full", rows), ("sanitized", other))}
    told = {name: {"test": f"{name}/test-*"} for name in ("full", "sanitized")}
    return Repository({"README.md": card(told)} | files)


def math_500() -> Repository:
    """A card without configs, and one file of lines."""
    rows = [
        {
            "problem": f"Compute $\\sqrt{{{n}}}^2$.",
            "solution": f"It is $\\boxed{{{n}}}$.",
            "answer": str(n),
            "subject": ("Algebra", "Geometry")[n % 2],
            "level": n,
            "unique_id": f"test/algebra/{n}.json",
        }
        for n in range(ROWS)
    ]
    return Repository({"README.md": b"---\nlanguage: en\n---\n", "test.jsonl": lines(rows)})


def aime_2024() -> Repository:
    rows = [
        {
            "id": 60 + n,
            "problem": f"Find {n}.",
            "solution": "-",
            "answer": f"{n:03}",
            "url": "https://a",
            "year": "2024",
        }
        for n in range(ROWS)
    ]
    files = {"data/train-00000-of-00001.parquet": parquet(rows)}
    return Repository({"README.md": card({"default": {"train": "data/train-*"}})} | files)


def livecodebench() -> Repository:
    rows = [
        {
            "question_title": f"Count {n}",
            "question_content": f"Count to {n}.",
            "platform": "leetcode" if n % 2 else "atcoder",
            "question_id": f"q{n}",
            "starter_code": "class Solution:\n    def count(self):\n        " if n % 2 else "",
            "difficulty": ("easy", "hard")[n % 2],
            "public_test_cases": "[]",
            "private_test_cases": "hidden",
        }
        for n in range(ROWS)
    ]
    other = parquet([rows[0] | {"question_content": "Of another window."}])
    files = {"v6/test-00000-of-00001.parquet": parquet(rows), "v5/test-00000-of-00001.parquet": other}
    return Repository({"README.md": card({name: {"test": f"{name}/test-*"} for name in ("v5", "v6")})} | files)


DATASETS = {
    "openai/openai_humaneval": humaneval,
    "google-research-datasets/mbpp": mbpp,
    "HuggingFaceH4/MATH-500": math_500,
    "HuggingFaceH4/aime_2024": aime_2024,
    "lighteval/code_generation_lite": livecodebench,
    "tatsu-lab/alpaca": alpaca,
    "allenai/c4": c4,
    "abisee/cnn_dailymail": cnn_dm,
    "openai/gsm8k": gsm8k,
    "HuggingFaceH4/mt_bench_prompts": mt_bench,
    "Skylion007/openwebtext": openwebtext,
    "mandarjoshi/trivia_qa": triviaqa,
    "Salesforce/wikitext": wikitext,
    "wmt/wmt14": wmt14,
    "EdinburghNLP/xsum": xsum,
}


def dataset(name: str) -> Repository:
    """The dataset of a hub id."""
    return DATASETS[name]()
