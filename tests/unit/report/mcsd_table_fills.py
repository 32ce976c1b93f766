"""Synthetic results of improved MCSD's Tables 2 to 4 and Figures 3 and 5: runs of every method with chosen alphas."""

from __future__ import annotations

from typing import Any

from mcsd_figure_fills import LARGE, LLAMA, add

VICUNA: dict[str, Any] = {"pair": "vicuna_7b_jf68m"}
VICUNA |= {"published": {"target": "vicuna_7b", "draft": "jf68m", "stand_in": False}}
STATIC, AT_ONE = {"temperature": 0.7}, {"temperature": 1.0}
OWN_RULE, SUBTREES = "independent_longest", "longest_subtree"
DRAWN: dict[str, Any] = {"draws": "without_replacement", "beta": 0.4}


def chain(gamma: int) -> dict[str, Any]:
    return {"shape": {"_target_": "specdec_core.shapes.chain", "depth": gamma}}


def tree(*widths: int) -> dict[str, Any]:
    return {"shape": {"_target_": "specdec_core.shapes.branching", "widths": list(widths)}}


FORK: dict[str, Any] = {"width": 16, "depth": 5, "init": "target", "decision": None, "beta": 0.4}
METHODS: dict[str, dict[str, Any]] = {
    "sd4": {"method": "sd", "params": chain(4), "size": 4, "levels": 4, "chance": 0.3},
    "mcsd4221": {"method": "mcsd", "params": tree(4, 2, 2, 1), "size": 44, "levels": 4, "chance": 0.5},
    "matched": {"method": "mcsd", "params": tree(8, 3, 1, 1), "size": 80, "levels": 4, "chance": 0.55},
    "ti": {"method": "target_init_mcsd", "params": {"widths": [2, 4, 3, 1, 1]}, "size": 82, "levels": 4, "chance": 0.8},
    "w1": {"method": "target_init_mcsd", "params": {"widths": [1, 4, 3, 1, 1]}, "size": 41, "levels": 4, "chance": 0.5},
    "sd5": {"method": "sd", "params": chain(5), "size": 5, "levels": 5, "chance": 0.3},
    "mcsd42211": {"method": "mcsd", "params": tree(4, 2, 2, 1, 1), "size": 60, "levels": 5, "chance": 0.5},
    "dynamic": {"method": "dynamic_mcsd", "params": FORK, "size": 96, "levels": 5, "chance": 0.9},
}
"""By a name of ours: what the rows of such a run are, and the chance by which a token is accepted."""
RULES = {"ti": OWN_RULE, "w1": SUBTREES, "dynamic": OWN_RULE}


def run(cells, name: str, **given: Any) -> str:
    """A run of one of `METHODS` as an experiment would have it; its run id."""
    own = METHODS[name] | {"dataset": "mt_bench", "verifier": RULES.get(name, "multi_candidate")} | STATIC | given
    virtual = {"ti": "targets_", "dynamic": "targets_", "w1": "target_"}.get(name, "")
    greedy = own["temperature"] == 0
    draws = "topk" if greedy else "without_replacement"
    params = {"draws": draws, "draft_temperature": 0.6 if greedy else own["temperature"]} | own.pop("params")
    options = {"draws": virtual + draws, "lossless": own["verifier"] != OWN_RULE, "params": params} | own
    method = options.pop("method")
    return add(cells, options.pop("drafter", name), method, **options)


def fill_static(cells, **given: Any) -> dict[tuple[str, str], str]:
    """The five methods of Table 2 on two of its datasets."""
    speeds = {"sd4": 1.2, "mcsd4221": 1.5, "matched": 1.6, "ti": 1.8, "w1": 1.45}
    return {
        (dataset, name): run(cells, name, **{"dataset": dataset, "speedup": speed} | given)
        for dataset in ("mt_bench", "alpaca")
        for name, speed in speeds.items()
    }


def fill_dynamic(cells, **given: Any) -> dict[tuple[str, str], str]:
    """The three methods of Table 3 on all datasets."""
    return {
        (dataset, name): run(cells, name, **{"dataset": dataset} | AT_ONE | given)
        for dataset in ("mt_bench", "alpaca", "triviaqa")
        for name in ("sd5", "mcsd42211", "dynamic")
    }


def fill_table4(cells) -> dict[tuple[str, float], str]:
    """MT-Bench at both temperatures, three of the four pairs."""
    return {
        (pair["pair"], temperature): run(cells, "dynamic", **pair | {"temperature": temperature})
        for pair in (LLAMA, VICUNA, LARGE)
        for temperature in (0.0, 1.0)
    }
