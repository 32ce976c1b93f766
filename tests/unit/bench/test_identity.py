"""What makes another cell of a config, and what does not."""

import pytest
from cells import config

from bench.configs import scientific_config
from bench.identity import identity
from bench.provenance import collect
from bench.store import run_id


def cell(*overrides: str) -> str:
    return run_id(identity(scientific_config(config(*overrides))))


@pytest.mark.parametrize(
    "override",
    [
        "runtime.device_map={model: cpu, lm_head: cpu}",
        "runtime.draft_device=cpu",
        "runtime.dtype=bfloat16",
        "pair.target.bits=8",
        "seed=1",
    ],
)
def test_other_weights_places_and_seeds_are_other_cells(override):
    assert cell(override) != cell()


@pytest.mark.parametrize(
    "override", ["runtime.num_threads=3", "runtime.warmup_conversations=4", "results_dir=elsewhere"]
)
def test_how_it_is_run_is_not(override):
    assert cell(override) == cell()


def test_options_that_came_later_change_no_cell_at_their_default():
    before = scientific_config(config())
    del before["pair"]["target"]["bits"]
    assert run_id(identity(before)) == cell()
    assert "placement" not in before["runtime"]


def test_the_device_of_a_row_says_how_it_was_shared(monkeypatch):
    alone = str(collect("cpu", "float32", "sdpa")["device_name"])
    placements = {
        f"2x {alone}, tensor parallel": {"tensor_parallel": 2},
        f"{alone}, draft on cuda:1": {"draft_device": "cuda:1"},
        f"{alone}, device map {{'model': 'cpu'}}": {"device_map": {"model": "cpu"}},
        alone: {},
    }
    for name, placement in placements.items():
        assert collect("cpu", "float32", "sdpa", placement)["device_name"] == name
