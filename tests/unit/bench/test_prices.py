"""Prices of forwards by machine: of data sheets, of kept rows, and the trees that are chosen by them."""

import numpy as np
import pytest
from cells import config

from bench.calibrate import kept, prices
from bench.calibrate.prices import LAUNCH_S, Prices
from bench.configs.cells import cell_of, pair_of
from bench.results.kept_rows import FOLDER, LatencyRow
from bench.results.store import Store
from specdec_core.search import choose_tree

VECTOR = [0.5, 0.2, 0.1]


def of_card(pair: str, card: str) -> Prices:
    return Prices.of_card(pair_of(config(f"pair={pair}")), card)


def at(times: prices.Forward | None, *sizes: float) -> list[float]:
    assert times is not None
    return times(np.array(sizes)).tolist()


def test_a_small_model_on_a_large_card_is_bound_by_its_launches() -> None:
    card, layers = of_card("tiny", "h100 80gb"), 6
    assert at(card.target, 1, 26) == pytest.approx(2 * [LAUNCH_S * (20 + 40 * layers)])
    assert 0 < at(card.draft, 1)[0] < at(card.target, 1)[0]
    assert not card.measured


@pytest.mark.parametrize(
    ("card", "bytes_per_s", "flops"), [("a100 80gb", 1.935e12, 312e12), ("rtx 4090", 1.008e12, 165.2e12)]
)
def test_a_large_model_is_bound_by_reading_its_weights_then_by_arithmetic(card, bytes_per_s, flops) -> None:
    """LLaMA-2 7B has 6.74e9 weights of two bytes, and two operations for each of a token; JF68M two layers."""
    found = of_card("llama2_7b_chat_jf68m", card)
    one, few, many = at(found.target, 1, 64, 1000)
    assert one == few == pytest.approx(2 * 6.74e9 / bytes_per_s, rel=0.01)
    assert many == pytest.approx(1000 * 2 * 6.74e9 / flops, rel=0.01)
    assert at(found.draft, 1, 10_000) == pytest.approx([LAUNCH_S * 100, 10_000 * 2 * 68e6 / flops], rel=0.01)


@pytest.mark.parametrize("card", ["gtx 1", "2x a100", "a100", ""])
def test_other_machines_are_refused_with_the_names_that_are_known(card, tmp_path) -> None:
    write(tmp_path, lambda role, tokens: 1.0)
    with pytest.raises(ValueError, match=r"cards\.csv .* here, float32"):
        prices.named(card, pair_of(config()), tmp_path)


def write(root, seconds, pair: str = "tiny") -> None:
    """Forward times of a machine."""
    who = {"run_id": "0" * 12, "pair": pair, "device_name": "here", "dtype": "float32", "num_prefix": 128, "repeat": 0}
    rows = [
        LatencyRow(**who, role=role, model_id=role, num_tokens=tokens, forward_s=seconds(role, tokens))
        for role in ("target", "draft")
        for tokens in (1, 8, 16)
    ]
    Store(root, FOLDER).write("latency", "0" * 12, rows)


def test_kept_times_are_of_the_pair_and_come_before_cards(tmp_path) -> None:
    write(tmp_path, lambda role, tokens: float(tokens))
    found = prices.named("here, float32", pair_of(config()), tmp_path)
    assert found.measured
    assert found.by_size([1, 4, 12, 99]) == {role: {1: 1.0, 4: 4.0, 12: 12.0} for role in ("target", "draft")}
    with pytest.raises(ValueError, match="here, float32"):
        prices.named("here, float32", pair_of(config("pair=tiny_self")), tmp_path)


@pytest.mark.parametrize(
    "seconds",
    [lambda role, n: 1.0 if role == "target" else 0.01, lambda role, n: 0.5 + n if role == "target" else 0.3],
    ids=["tokens_are_free", "tokens_cost"],
)
def test_trees_are_chosen_for_the_named_machine_and_nothing_is_timed(seconds, tmp_path, monkeypatch) -> None:
    write(tmp_path, seconds)
    monkeypatch.setattr(kept, "latency", lambda setting: pytest.fail("timed here"))
    sizes = "calibration.latency.num_tokens=[1,4,8,16]"
    chosen = ("drafter=sequoia_hardware", f"drafter.acceptance={VECTOR}", sizes, f"results_dir={tmp_path}")
    cell = cell_of(config(*chosen, "calibration.prices='here, float32'"))
    times = np.interp([4, 8, 16], [1, 8, 16], [seconds("target", n) for n in (1, 8, 16)])
    times = dict(zip((1, 4, 8, 16), (seconds("target", 1), *times), strict=True))
    best = choose_tree(VECTOR, times, seconds("draft", 1), range(1, 17), plain=False).shape
    assert (cell.drafter_params["n"], cell.drafter_params["depth"]) == (best.num_drafted, best.depth)
    assert cell.predicted_speedup is None, "it is of another machine"


@pytest.mark.parametrize(
    ("card", "n", "deeper"), [("h100 80gb", 255, False), ("l4", 255, True), ("a100 80gb", 127, False)]
)
def test_a_card_chooses_the_trees_of_a_pair_that_nobody_can_load_here(card, n, deeper, tmp_path) -> None:
    """By published shapes: 256 tokens take an A100 longer than the weights; an L4's target waits for a deeper draft."""
    chosen = ("pair=llama2_7b_chat_jf68m", "drafter=sequoia_hardware", "drafter.acceptance=[0.8,0.1]")
    cell = cell_of(config(*chosen, f"results_dir={tmp_path}", f"calibration.prices={card}"))
    assert cell.drafter_params["n"] == n
    assert (cell.drafter_params["depth"] > 12) == deeper
