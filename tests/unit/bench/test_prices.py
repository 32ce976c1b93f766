"""Prices of forwards by machine: of data sheets, of kept rows, and the trees that are chosen by them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cells import config

from specdec_core.search import choose_tree
from specdec_trees import reproduce
from specdec_trees.calibrate import kept, prices
from specdec_trees.calibrate.prices import LAUNCH_S, Prices
from specdec_trees.configs.cells import cell_of, pair_of
from specdec_trees.measure.cell import Cell
from specdec_trees.published import card, cards
from specdec_trees.results.kept_rows import FOLDER, LatencyRow
from specdec_trees.results.store import Store

VECTOR = [0.5, 0.2, 0.1]
HERE = "here in float32"
PAIR = pair_of(config())


def of_card(pair: str, name: str, **changes: object) -> Prices:
    spec = pair_of(config(f"pair={pair}"))
    return Prices.of_card(replace(spec, target=replace(spec.target, **changes)), name)


def at(times: prices.Forward | None, *sizes: float) -> list[float]:
    assert times is not None
    return times(np.array(sizes)).tolist()


# data sheets


def test_a_small_model_on_a_large_card_is_bound_by_its_launches() -> None:
    found, layers = of_card("tiny", "h100 80gb"), 6
    assert at(found.target, 1, 26) == pytest.approx(2 * [LAUNCH_S * (20 + 40 * layers)])
    assert 0 < at(found.draft, 1)[0] < at(found.target, 1)[0]
    assert not found.measured
    own = of_card("tiny_self", "h100 80gb")  # which leaves out two of its layers
    assert at(own.draft, 1) == pytest.approx([LAUNCH_S * (20 + 40 * (layers - 2))])


@pytest.mark.parametrize(("name", "bytes_per_s", "flops"), [("a100 80gb", 1.935e12, 312e12), ("l40", 0.864e12, 181e12)])
def test_a_large_model_is_bound_by_reading_its_weights_then_by_arithmetic(name, bytes_per_s, flops) -> None:
    """LLaMA-2 7B has 6.74e9 weights of two bytes, and two operations for each of a token; JF68M two layers."""
    found = of_card("llama2_7b_chat_jf68m", name)
    one, few, many = at(found.target, 1, 64, 1000)
    assert one == few == pytest.approx(2 * 6.74e9 / bytes_per_s, rel=0.01)
    assert many == pytest.approx(1000 * 2 * 6.74e9 / flops, rel=0.01)
    assert at(found.draft, 1, 10_000) == pytest.approx([LAUNCH_S * 100, 10_000 * 2 * 68e6 / flops], rel=0.01)
    quantised = of_card("llama2_7b_chat_jf68m", name, bits=4)
    assert at(quantised.target, 1)[0] < one
    assert at(quantised.target, 1000)[0] == many, "fewer bytes, the same arithmetic"


def test_offloaded_layers_come_over_the_link_and_all_others_must_fit() -> None:
    with pytest.raises(ValueError, match="138 GB"):
        of_card("llama2_70b_self", "h100 80gb")
    found = of_card("llama2_70b_llama2_7b", "rtx 4090", offload=True)
    assert at(found.target, 1)[0] == pytest.approx(137e9 / prices.HOST_BPS, rel=0.02)


@pytest.mark.parametrize("name", ["gtx 1", "2x a100", "a100", "h100 94gb", "", "pcie 4.0 x16", "h100 80gb, float32"])
def test_other_machines_are_refused_with_the_names_that_are_known(name, tmp_path) -> None:
    """What stands behind a comma in a device's name, its placement and dtype, is of no data sheet."""
    write(tmp_path)
    with pytest.raises(ValueError, match=rf"a100 80gb.*{HERE}"):
        prices.named(name, PAIR, tmp_path)


def test_every_card_is_known_by_its_name() -> None:
    for name in cards():
        assert at(of_card("tiny", name).target, 1)[0] > 0
    assert card("h100", 94) is None, "of another memory nothing is known"
    assert card("rtx 4090", 24) == card("rtx 4090")


# kept rows


def write(root: Path, seconds=lambda role, tokens: 1.0, run_id: str = "0" * 12, sizes=(1, 8, 16), **given) -> None:
    """Forward times of a machine."""
    models = {"target": PAIR.target.name, "draft": PAIR.draft.name} | given.pop("models", {})
    who = {"run_id": run_id, "pair": "tiny", "device_name": "here", "dtype": "float32", "num_prefix": 128, "repeat": 0}
    rows = [
        LatencyRow(**who | given, role=role, model_id=model, num_tokens=tokens, forward_s=seconds(role, tokens))
        for role, model in models.items()
        for tokens in sizes
    ]
    Store(root, FOLDER).write("latency", run_id, rows)


def test_kept_times_are_of_the_pairs_own_models(tmp_path) -> None:
    write(tmp_path, lambda role, tokens: float(tokens))
    write(tmp_path, run_id="1" * 12, models={"target": "tiny/target (4 bits)", "draft": "another"})
    found = prices.named(HERE, PAIR, tmp_path)
    assert found.measured
    assert found.by_size([1, 4, 12, 99]) == {role: {1: 1.0, 4: 4.0, 12: 12.0} for role in ("target", "draft")}
    with pytest.raises(ValueError, match="tiny_self"):
        prices.named(HERE, pair_of(config("pair=tiny_self")), tmp_path)


def test_several_measurements_of_a_machine_are_told_apart_by_their_ids(tmp_path) -> None:
    """Of other threads or other weights; the mean of the two is of no machine."""
    write(tmp_path)
    write(tmp_path, lambda role, tokens: 2.0, run_id="1" * 12)
    with pytest.raises(ValueError, match=f"{'0' * 12} or {'1' * 12}"):
        prices.named(HERE, PAIR, tmp_path)
    assert at(prices.named("1" * 12, PAIR, tmp_path).target, 4) == [2.0]


def test_a_name_without_its_dtype_is_not_taken_for_a_card(tmp_path) -> None:
    write(tmp_path, device_name="NVIDIA H100 80GB HBM3", dtype="bfloat16")
    with pytest.raises(ValueError, match="NVIDIA H100 80GB HBM3 in bfloat16"):
        prices.named("NVIDIA H100 80GB HBM3", PAIR, tmp_path)
    with pytest.raises(ValueError, match="NVIDIA H100 80GB HBM3 in bfloat16"):
        prices.named("NVIDIA H100 80GB HBM3 in float32", PAIR, tmp_path)


# what is chosen by them


def priced(root: Path, *overrides: str) -> Cell:
    return cell_of(config(f"results_dir={root}", f"calibration.prices='{HERE}'", *overrides))


@pytest.mark.parametrize(
    "seconds",
    [lambda role, n: 1.0 if role == "target" else 0.01, lambda role, n: 0.5 + n if role == "target" else 0.3],
    ids=["tokens_are_free", "tokens_cost"],
)
def test_trees_are_chosen_for_the_named_machine_and_nothing_is_timed(seconds, tmp_path, monkeypatch) -> None:
    write(tmp_path, seconds)
    monkeypatch.setattr(kept, "latency", lambda setting: pytest.fail("timed here"))
    sizes = "calibration.latency.num_tokens=[1,4,8,16]"
    cell = priced(tmp_path, "drafter=sequoia_hardware", f"drafter.acceptance={VECTOR}", sizes)
    times = np.interp([1, 4, 8, 16], [1, 8, 16], [seconds("target", n) for n in (1, 8, 16)])
    times = dict(zip((1, 4, 8, 16), times, strict=True))
    best = choose_tree(VECTOR, times, seconds("draft", 1), range(1, 17), plain=False).shape
    assert (cell.drafter_params["n"], cell.drafter_params["depth"]) == (best.num_drafted, best.depth)


def test_a_tree_for_another_machine_is_no_hardware_aware_tree_of_this_one(tmp_path, monkeypatch) -> None:
    """Its config names the machine, its method is a tree of a size, and no speedup is predicted for here."""
    write(tmp_path)
    monkeypatch.setattr(
        kept, "latency", lambda setting: {role: {1: 1.0, 8: 1.0, 16: 1.0} for role in ("target", "draft")}
    )
    few = (
        "limit=1",
        "decoding.max_new_tokens=8",
        "calibration.latency.num_tokens=[1,8,16]",
        "drafter=sequoia_hardware",
    )
    here, there = cell_of(config(f"results_dir={tmp_path}", *few)), priced(tmp_path, *few)
    assert here.drafter_params == there.drafter_params
    assert (here.method, there.method) == ("sequoia_hardware", "sequoia")
    assert here.run_id != there.run_id
    assert (here.config.get("prices"), there.config["prices"]) == (None, HERE)
    assert (here.predicted_speedup is None, there.predicted_speedup is None) == (False, True)
    assert here.predicted_mal == there.predicted_mal
    planned = reproduce._cell(config(*few, f"calibration.prices='{HERE}'"))
    assert (planned["drafter"]["method"], planned["prices"]) == (there.method, HERE)
    fixed = priced(tmp_path, *few, "drafter=sequoia", "drafter.n=7")
    assert "prices" not in fixed.config, "where nothing is chosen by them"


@pytest.mark.parametrize(
    ("name", "n", "deeper"), [("h100 80gb", 255, False), ("l4", 255, True), ("a100 80gb", 127, False)]
)
def test_a_card_chooses_the_trees_of_a_pair_that_nobody_can_load_here(name, n, deeper, tmp_path) -> None:
    """By published shapes: 256 tokens take an A100 longer than the weights; an L4's target waits for a deeper draft."""
    chosen = ("pair=llama2_7b_chat_jf68m", "drafter=sequoia_hardware", "drafter.acceptance=[0.8,0.1]")
    cell = cell_of(config(*chosen, f"results_dir={tmp_path}", f"calibration.prices={name}"))
    assert cell.drafter_params["n"] == n
    assert (cell.drafter_params["depth"] > 12) == deeper


def test_sizes_that_are_not_known_are_named(tmp_path) -> None:
    write(tmp_path, lambda role, tokens: 1.0 if role == "target" else 0.01)
    deep = ("drafter=sequoia_hardware", f"drafter.acceptance={VECTOR}", "drafter.depth=hardware")
    assert priced(tmp_path, *deep, "drafter.n=10").drafter_params["n"] == 10, "between those that were timed"
    with pytest.raises(ValueError, match=f"{HERE} lack 21 tokens"):
        priced(tmp_path, *deep, "drafter.n=20")
    write(tmp_path, sizes=(8, 16))
    with pytest.raises(ValueError, match=f"{HERE} lack 1 token"):
        priced(tmp_path, *deep, "drafter.n=10")


def test_growth_stops_where_a_layer_costs_more_than_it_adds(tmp_path, monkeypatch) -> None:
    """A layer reads as many tokens as the tree has nodes; between sizes times are interpolated."""
    write(tmp_path, lambda role, tokens: 2.0 if role == "target" else tokens / 10)
    monkeypatch.setattr(kept, "latency", lambda setting: {"target": {1: 4.0}, "draft": {1: 0.1, 8: 0.8}})
    chosen = ("drafter=opt_tree", "drafter.n=7", "drafter.delta=hardware")
    assert cell_of(config(*chosen, f"results_dir={tmp_path}")).drafter_params["delta"] == pytest.approx(0.7 / 4)
    assert priced(tmp_path, *chosen).drafter_params["delta"] == pytest.approx(0.7 / 2)
    beam = ("drafter=eagle2", "drafter.k=4", "+drafter.delta=hardware")
    assert priced(tmp_path, *beam).drafter_params["delta"] == pytest.approx(0.4 / 2), "a layer reads the beam"
    sites = ("drafter=dyspec_threshold", "drafter.n=7", "verifier=by_draws", "+drafter.delta=hardware")
    assert priced(tmp_path, *sites).drafter_params["delta"] == pytest.approx(0.1 / 2), "its layers have any width"
    with pytest.raises(ValueError, match=f"{HERE} lack 1 token of the target, or 17"):
        priced(tmp_path, *chosen, "drafter.n=17")
    with pytest.raises(ValueError, match=r"drafter\.delta"):
        priced(tmp_path, *chosen, "drafter.delta=cheap")
    with pytest.raises(ValueError, match="no forward of a draft"):
        cell_of(config(*chosen, "pair.draft=null", "calibration.prices='h100 80gb'"))
