"""How many prompts a plan counts, against what `datasets.load` gives the runner."""

import json
from dataclasses import replace

import pytest

from specdec_trees.configs.cells import dataset_of
from specdec_trees.plan import planning
from specdec_trees.plan.composing import composer
from specdec_trees.plan.prompts import turns
from specdec_trees.prompts import datasets

SMOKE = ("experiment=smoke", "drafter=sequoia", "drafter.n=8", "decoding.max_new_tokens=64")
BY_PART = [("all", 80), ("calibration", 40), ("evaluation", 40)]


@pytest.fixture
def folder(tmp_path):
    """80 conversations of two turns under the name of MT-Bench, and 500 of one under that of C4."""
    for name, count, texts in (("mt_bench", 80, ["one", "two"]), ("c4", 500, ["x" * 2000])):
        lines = (json.dumps({"id": str(number), "turns": texts}) for number in range(count))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    return tmp_path


def spec_of(name: str, part: str) -> datasets.DatasetSpec:
    with composer() as compose:
        return replace(dataset_of(compose([f"dataset={name}"])), part=part)


@pytest.mark.parametrize("limit", [None, 3, 45, 300])
@pytest.mark.parametrize("part", datasets.PARTS)
@pytest.mark.parametrize("name", ["mt_bench", "c4"])
def test_a_folders_prompts_are_those_that_are_loaded(name, part, limit, folder):
    spec = spec_of(name, part)
    loaded = datasets.load(spec, data_dir=folder, limit=limit)
    assert turns(spec, {"data_dir": str(folder)}, limit) == tuple(len(found.turns) for found in loaded)


@pytest.mark.parametrize("limit", [None, 3, 45, 300])
@pytest.mark.parametrize("part", datasets.PARTS)
def test_the_hubs_mt_bench_is_split_as_a_file_of_it(part, limit, folder):
    for spec in (spec_of("mt_bench", part), replace(spec_of("mt_bench", part), mode="raw", prompt_tokens=128)):
        found = turns(spec, {"data_dir": None}, limit)
        assert found == turns(spec, {"data_dir": str(folder)}, limit)
        assert set(found) == {1 if spec.mode == "raw" else 2}


def test_parts_of_a_large_dataset_are_as_large_as_they_may_be():
    sizes = {part: len(turns(spec_of("c4", part), {"data_dir": None}, 5000)) for part in datasets.PARTS}
    assert sizes == {"all": 5000, "calibration": 200, "evaluation": 1800}
    assert [datasets.part_size(399, part) for part in datasets.PARTS] == [399, 199, 200]


@pytest.mark.parametrize(("part", "count"), BY_PART)
def test_a_plan_has_the_prompts_of_its_part_alone(part, count, folder):
    for where in ("null", str(folder)):
        cells = planning.make([*SMOKE, "dataset=mt_bench", f"dataset.part={part}", f"data_dir={where}", "limit=null"])
        (cell,) = cells.of_kind("cells")
        assert (cell.tokens, cell.prompts.split()[0]) == (count * 2 * 64, str(count))
        (vector,) = cells.of_kind("acceptance")
        assert (vector.tokens, vector.prompts) == (40 * 64, "40 prompts x 64 new tokens")


def test_conversations_of_unlike_length_are_said_to_be(folder):
    path = folder / "mt_bench.jsonl"
    path.write_text(path.read_text() + "\n" + json.dumps({"id": "short", "turns": ["one"]}))
    (cell,) = planning.make([*SMOKE, "dataset=mt_bench", f"data_dir={folder}", "dataset.part=all", "limit=81"]).of_kind(
        "cells"
    )
    assert cell.prompts.startswith("81 conversations x 1 to 2 turns x 64 new tokens")
    assert cell.tokens == (80 * 2 + 1) * 64


def test_a_file_that_changed_is_counted_anew(folder):
    spec, plain = spec_of("mt_bench", "all"), {"data_dir": str(folder)}
    assert len(turns(spec, plain, None)) == 80
    (folder / "mt_bench.jsonl").write_text(json.dumps({"id": "only", "turns": ["one"]}))
    assert turns(spec, plain, None) == (1,)
