"""Synthetic results of Sequoia's artifacts, all on CNN DailyMail at temperature 0.6 where nothing else is swept."""

from __future__ import annotations

from typing import Any

from report_rows import VECTOR

SETTING: dict[str, Any] = {"dataset": "cnn_dm", "temperature": 0.6}
SAMPLING: dict[str, Any] = {**SETTING, "verifier": "without_replacement", "draws": "without_replacement"}
P = [0.5, 0.2, 0.1, 0.05]
"""P_1 to P_4: 0.5, 0.7, 0.8, 0.85. Limits: sequence 2, k sequences 2.7, binary 3.33, k-ary 6.67."""
GROWTH = {
    "sequoia": {1: 1.5, 7: 2.2, 31: 2.8, 511: 3.9},
    "k_sequences": {1: 1.5, 7: 2.1, 31: 2.4, 511: 2.6},
    "k_ary": {1: 1.5, 7: 2.15, 31: 2.5, 511: 3.0},
    "binary": {1: 1.5, 7: 2.15, 31: 2.45, 511: 2.9},
    "sequence": {1: 1.5, 7: 1.99, 31: 2.0, 511: 2.0},
}
SHAPES = {
    "sequoia": lambda n: {"n": n, "acceptance": P, "depth": None},
    "k_sequences": lambda n: {"shape": {"n": n, "acceptance": P}},
    "binary": lambda n: {"shape": {"size": n}},
    "chain": lambda n: {"shape": {"depth": n}},
}
RULES = {"without_replacement": 2.0, "spec_infer": 1.8, "target_sample": 1.5}


def sized(cells, method: str, n: int, drafter: str | None = None, **given: Any) -> str:
    """A run of a drafter that is swept in size."""
    return cells.add(drafter or f"sized_{method}", method, params=SHAPES[method](n), size=n, **SAMPLING | given)


def fill_sizes(cells, **given: Any) -> None:
    known = {name: value for name, value in given.items() if name in VECTOR}
    cells.add_vector(P, growth=GROWTH, exponent=0.9, **SETTING | known)
    for method in SHAPES:
        for n in (7, 31, 511):
            sized(cells, method, n, mal=2 + n / 400, **given)


def fill_rejections(cells) -> None:
    for temperature in (0.2, 0.6, 1.0):
        for verifier in (*RULES, "k_seq"):
            measured = verifier != "k_seq"
            given = SETTING | {"temperature": temperature, "verifier": verifier}
            cells.add_vector(P, measured=measured, exponent=0.75 if measured else None, **given)


def fill_temperatures(cells) -> None:
    for temperature in (0.2, 0.6, 1.0):
        for rule, speedup in RULES.items():
            params = {"n": 127, "acceptance": P, "draft_temperature": temperature}
            cells.add(
                "sequoia", params=params, speedup=speedup, verifier=rule, **SETTING | {"temperature": temperature}
            )


def fill_hardware(cells) -> None:
    for n, speedup in ((7, 1.3), (63, 1.6), (511, 1.1)):
        sized(cells, "sequoia", n, speedup=speedup)
    chosen: dict[str, Any] = {"predicted_speedup": 2.25, "predicted_mal": 3.1, "depth": 5}
    cells.add("sequoia_hardware", params={"n": 63, "depth": 5}, speedup=1.9, **SAMPLING, **chosen)
