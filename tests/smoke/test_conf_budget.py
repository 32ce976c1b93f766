"""The experiment at equal budget: what it sweeps, and that drafters keep to the size they are given."""

from pathlib import Path

import hydra
import pytest
from cells import execute
from composed import cells, composed, names, plain

from specdec_trees.plan.trees import size as planned_size
from specdec_trees.results.store import load

LOSSLESS = {"topk": "target_sample", "iid": "spec_infer", "without_replacement": "without_replacement"}
SIZED = [name for name in names("drafter") if name.startswith("sized_")]
UNFILLED = ("sized_mcsd", "sized_gsd", "sized_tsd", "sized_prompt_lookup", "sized_suffix_decoding")
FILLED = [name for name in SIZED if name not in UNFILLED]
"""Those whose trees have just the nodes that they may."""
SHORT = ("pair=tiny", "dataset=mini", "dataset.part=evaluation", "limit=1", "decoding.max_new_tokens=6")
SHORT += ("runtime.warmup_conversations=0", "runtime.baseline=false")


def configs() -> list[dict]:
    return [plain(composed(*cell)) for cell in cells("bench/budget", "pair=tiny")]


@pytest.mark.long
def test_every_drafter_meets_every_budget_in_every_setting():
    found = configs()
    swept = {
        (c["dataset"]["name"], c["decoding"]["temperature"], c["drafter"]["name"], c["size"])
        for c in found
        if c["drafter"]["name"] != "autoregressive"
    }
    axes = [{cell[axis] for cell in swept} for axis in range(4)]
    assert len(swept) == len(axes[0]) * len(axes[1]) * len(axes[2]) * len(axes[3])
    assert [len(axis) >= 2 for axis in axes] == [True] * 4
    assert 0.0 in axes[1]
    others = {"sized_k_sequences", "sized_16_sequences", "sized_kary"}  # Sequoia's figures have them
    assert axes[2] == set(SIZED) - others
    once = {(c["dataset"]["name"], c["decoding"]["temperature"]) for c in found}
    assert len(swept) + len(once) <= 160, "the default sweep stays short"


def test_rules_keep_the_targets_distribution():
    for config in configs():
        drafter, rule = config["drafter"], config["verifier"]
        made = hydra.utils.instantiate({"_target_": rule["_target_"]})
        draws = drafter.get("draws", "topk")
        assert rule["name"] == LOSSLESS[draws]
        assert draws in made.lossless_for
        assert rule["allow_lossy"] is False
        assert config["dataset"]["part"] == "evaluation", "calibrated trees are chosen on the other part"


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("size", [1, 8, 31, 100])
def test_a_plan_knows_the_size(name, size):
    config = plain(composed(f"drafter={name}", f"+size={size}"))
    nodes, _ = planned_size(config["drafter"], config["calibration"])
    assert nodes <= size
    assert nodes == size or name == "sized_mcsd"


@pytest.mark.long
@pytest.mark.parametrize(
    ("decoding", "size"),
    [
        ("greedy", 8),
        ("t06", 128),
        *(pytest.param(*other, marks=pytest.mark.long) for other in (("greedy", 128), ("t06", 8))),
    ],
)
def test_trees_have_the_size_that_they_are_given(decoding, size, tmp_path: Path):
    chosen = (*SHORT, f"decoding={decoding}", "verifier=by_draws", f"+size={size}")
    for name in SIZED:
        assert execute(tmp_path, *chosen, f"drafter={name}") in ("ok", "skipped")
    results = load(tmp_path, "default")
    runs = results.runs.set_index("drafter")
    assert set(runs["status"]) == {"ok"}
    assert runs["lossless"].all()
    drafted = results.steps.groupby("run_id")["num_drafted"]
    largest, least = (getattr(drafted, what)()[runs["run_id"]].set_axis(runs.index) for what in ("max", "min"))
    assert largest.max() == size
    filled = [name for name in FILLED if name in runs.index]
    assert set(least[filled]) == {size}, least
    assert (largest["sized_mcsd"], least["sized_mcsd"]) == (size, size), "8 and 128 have k-configurations"
    assert largest["sized_tsd"] > size / 8
