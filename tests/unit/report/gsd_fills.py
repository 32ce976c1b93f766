"""Synthetic results of GSD's artifacts: rows of token graphs, distributions of first tokens, and quality of texts."""

from __future__ import annotations

from typing import Any

import numpy as np

from specdec_trees.results.rows import QualityRow, StepRow, VariationRow

GREEDY: dict[str, Any] = {"dataset": "gsm8k", "verifier": "target_sample"}
SAMPLING: dict[str, Any] = GREEDY | {"temperature": 0.7, "top_p": 0.7}
LOSSY: dict[str, Any] = SAMPLING | {"verifier": "gsd_nondeterministic", "lossless": False, "variation": 0.125}
CODE: dict[str, Any] = LOSSY | {"verifier": "gsd_nondeterministic_code"}
LARGE: dict[str, Any] = {"pair": "llama2_70b_llama2_7b"}
LARGE |= {"published": {"target": "llama2_70b", "draft": "llama2_7b", "stand_in": False}}
CHAT: dict[str, Any] = {"pair": "llama2_70b_chat_llama2_7b_chat"}
CHAT |= {"published": {"target": "llama2_70b_chat", "draft": "llama2_7b_chat", "stand_in": False}}
SMALL: dict[str, Any] = {"pair": "llama2_7b_jf160m"}
SMALL |= {"published": {"target": "llama2_7b", "draft": "llama_160m", "stand_in": False}}
CLASS_7B: dict[str, Any] = {"tau": 1, "theta_prob": 0.4, "theta_sib": 0.1}
SMALL |= {"thresholds": CLASS_7B}
SELF: dict[str, Any] = {"pair": "tiny_self"}
SELF |= {"published": {"target": "llama2_70b", "draft": "none", "stand_in": True}}
GRAPHS: dict[str, dict[str, Any]] = {
    "ssd": {"live": 7, "prob": 1, "mal": 4.0, "ranks": [1.0]},
    "ssd_adaptive": {"live": 7, "prob": 1, "mal": 3.0, "ranks": [1.0]},
    "ssd_noexit": {"live": 10, "mal": 4.5, "ranks": [1.0]},
    "ssd_iid": {"live": 7, "prob": 1, "mal": 3.5, "ranks": [1.0], "draws": "iid"},
    "tsd": {"live": 60, "prob": 40, "mal": 5.0, "capped": 0.5, "recurring": [0.7, 0.4, 0.2, 0.1, 0.05]},
    "tsd_sib": {"live": 40, "prob": 20, "sib": 30, "mal": 4.8, "recurring": [0.7, 0.4, 0.2, 0.1, 0.05]},
    "gsd": {"live": 12, "prob": 4, "sib": 10, "alias": 6, "mal": 5.2, "merged": 0.3},
}
"""Of each method, per step: records of every class, MAL, shares of capped steps and of tokens behind a merge edge."""
OPTIONS: dict[str, Any] = {"live": 8, "prob": 0, "sib": 0, "alias": 0, "merged": 0.0, "capped": 0.0}
OPTIONS |= {"thresholds": {"tau": 2, "theta_prob": 0.2, "theta_sib": 0.3}}
OPTIONS |= {"ranks": [0.7, 0.2, 0.1], "recurring": None, "kl": None, "variation": None, "rouge": None}
"""What `add` knows beside the options of the rows; of `ranks` the i-th is the share of i-th children."""


def add(cells, drafter: str, method: str | None = None, **given: Any) -> str:
    """One run of a token graph, with what `GRAPHS` has for its method where nothing else is given; its run id.

    `params` are those of the method with these `thresholds`, 70B's if none are given, and what is given of them.
    `variation` is the mean total variation of its steps, `rouge` the mean ROUGE-1 F1 of its texts; the autoregressive
    texts have 0.25. ROUGE-2 is 0.4 and ROUGE-L 0.8 of ROUGE-1.
    """
    options = GRAPHS.get(method or drafter, {}) | GREEDY | given
    own = OPTIONS | {name: options.pop(name) for name in OPTIONS if name in options}
    options["params"] = _params(method or drafter, own["thresholds"]) | given.get("params", {})
    run_id = cells.add(drafter, method, **options)
    frame = cells.store.read("steps", [run_id])
    rng = np.random.default_rng(int(run_id, 16) % 2**32)
    rows = [_with_graph(row, own, rng) for row in frame.to_dict("records")]
    if not rows:
        return run_id
    cells.store.write("steps", run_id, rows)
    if own["variation"] is not None:
        cells.store.write("variation", run_id, [_variation(row, own["variation"], rng) for row in rows])
    if own["rouge"] is not None:
        turns = dict.fromkeys((row.prompt_id, row.turn) for row in rows)
        arms = (("method", own["rouge"]), ("autoregressive", 0.25))
        cells.store.write(
            "quality", run_id, [_quality(run_id, turn, arm, mean, rng) for turn in turns for arm, mean in arms]
        )
    return run_id


def _params(method: str, thresholds: dict[str, Any]) -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {
        "ssd": {"k": 1, "tau": None, "theta_sib": 0.0, "draws": "topk"},
        "ssd_noexit": {"k": 1, "tau": None, "theta_prob": 0.0, "theta_sib": 0.0, "draws": "topk"},
        "ssd_iid": {"k": 1, "tau": None, "theta_sib": 0.0, "draws": "iid"},
        "ssd_adaptive": {"theta_prob": 0.6, "target_rate": 0.9, "max_steps": 12},
        "tsd": {"tau": None, "theta_sib": 0.0},
        "tsd_sib": {"tau": None},
    }
    pruning = {"gsd": "siblings", "tsd_sib": "siblings", "gsd_leaves": "paper", "gsd_code": "code"}
    kept = {"pruning": pruning[method]} if method in pruning else {}
    kept |= {"tau_as_context": False} if method.startswith("gsd") else {}
    return {"k": 4, "max_steps": 10} | thresholds | own.get(method, {}) | kept


def _with_graph(row: dict[str, Any], own: dict[str, Any], rng: np.random.Generator) -> StepRow:
    accepted = row["num_accepted"]
    shares = np.array(own["ranks"]) / sum(own["ranks"])
    drafted = own["live"] + own["prob"] + own["sib"] + own["alias"]
    graph = {
        "num_live": own["live"] + int(rng.integers(-1, 2)),
        "num_prob_leaf": own["prob"],
        "num_sib_leaf": own["sib"],
        "num_alias": own["alias"],
        "num_drafted": min(drafted, 100),
        "capped": bool(rng.uniform() < own["capped"]),
        "accepted_ranks": [int(rank) for rank in rng.choice(len(shares), size=accepted, p=shares)],
        "num_behind_merge": (behind := int(rng.binomial(accepted, own["merged"]))),
        "num_in_shared_subtree": behind + int(rng.binomial(accepted - behind, own["merged"])),
        "num_displaced": behind + int(rng.binomial(accepted - behind, own["merged"])),
        "visited_children": [int(count) for count in rng.integers(len(shares), 5, size=accepted + 1)],
        "recurring": own["recurring"],
        "in_recurring": own["recurring"],
        "merge_kl": None if own["kl"] is None else [own["kl"] * float(rng.uniform(0.5, 1.5))] * own["alias"],
    }
    return StepRow(**row | graph)


def _variation(row: StepRow, mean: float, rng: np.random.Generator) -> VariationRow:
    where = {name: getattr(row, name) for name in ("run_id", "prompt_id", "turn", "step")}
    return VariationRow(**where, total_variation=mean * float(rng.uniform(0.5, 1.5)))


def _quality(run_id: str, turn: tuple[str, int], arm: str, mean: float, rng: np.random.Generator) -> QualityRow:
    """Later turns have no reference."""
    value = mean * float(rng.uniform(0.8, 1.2)) if turn[1] == 0 else None
    scores = {name: None if value is None else value * part for name, part in ROUGE.items()}
    return QualityRow(run_id=run_id, prompt_id=turn[0], turn=turn[1], arm=arm, num_words=40, **scores)


ROUGE = {"rouge1": 1.0, "rouge2": 0.4, "rouge_l": 0.8}


def fill_table1(cells, **given: Any) -> dict[tuple[str, str], str]:
    """GSM8K, greedy and top-p, by method and decoding, of one pair and of the target that drafts for itself."""
    runs = {}
    for decoding, options in (("greedy", GREEDY), ("top-p", SAMPLING)):
        for method in ("ssd", "ssd_noexit", "tsd", "tsd_sib", "gsd", "gsd_leaves"):
            runs[method, decoding] = add(cells, method, **options | given)
        runs["self", decoding] = add(cells, "ssd_adaptive", **options | SELF | {"mal": 3.0})
    return runs


def fill_rules(cells, **given: Any) -> dict[tuple[str, str], str]:
    """The methods of Tables 2, 9 and 10 under a lossless rule and under the paper's, by drafter and rule."""
    runs = {}
    for drafter in ("ssd", "ssd_iid", "tsd", "gsd", "gsd_tau2"):
        method = drafter.partition("_tau")[0]
        lossless = {"verifier": "spec_infer"} if drafter == "ssd_iid" else {}
        own = given | ({"params": {"tau": 2}} if drafter == "gsd_tau2" else {})
        runs[drafter, "lossless"] = add(cells, drafter, method, **SAMPLING | {"rouge": 0.25} | lossless | own)
        runs[drafter, "lossy"] = add(cells, drafter, method, **LOSSY | {"rouge": 0.2} | own)
        runs[drafter, "code"] = add(cells, drafter, method, **CODE | {"rouge": 0.2} | own)
    return runs


def fill_steps(cells, **given: Any) -> dict[str, str]:
    """The five rows of Table 3."""
    few: dict[str, Any] = {"params": {"k": 2}, "live": 9}
    sizes: dict[str, dict[str, Any]] = {"tsd_k2": few, "gsd_k2": few, "tsd": {}, "gsd": {}}
    runs = {name: add(cells, name, name.partition("_")[0], **own | given) for name, own in sizes.items()}
    return {"ssd": add(cells, "ssd", **given)} | runs
