"""Synthetic results of improved MCSD's Table 1: answers with grades, quality and variation."""

from __future__ import annotations

from typing import Any

import numpy as np

from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, AnswerRow, JudgementRow, QualityRow, VariationRow

NAMES = {"jf68m": "llama2_7b_chat_jf68m", "tinyllama_1_1b": "llama2_7b_chat_tinyllama"}
RULES = ("independent_longest", "longest_subtree")
SCORES = {1: 6.5, 2: 5.5, 3: 4.5}
"""Mean grades by width; the target alone has 6.5."""


def params(width: int, temperature: float = 0.7) -> dict[str, Any]:
    """The arguments of a run's drafter."""
    return {"widths": [width, 4, 3, 1, 1], "draws": "without_replacement", "draft_temperature": temperature}


def add(cells, width: int, rule: str = RULES[0], draft: str = "jf68m", **given: Any) -> str:
    """One run. `score` None: not judged; `judge` is its name, `fall` what it loses of log-likelihood."""
    own = {"score": SCORES[width], "judge": "judge-1", "fall": 0.1 * width, "variation": 0.05 * (width - 1)}
    own |= {name: given.pop(name) for name in list(own) if name in given}
    options = {
        "pair": NAMES[draft],
        "published": {"target": "llama2_7b_chat", "draft": draft, "stand_in": False},
        "params": params(width),
        "temperature": 0.7,
        "verifier": rule,
        "draws": f"target{'s' * (width > 1)}_without_replacement",
        "lossless": width == 1 and rule == RULES[1],
    }
    run_id = cells.add("ti_mcsd", "target_init_mcsd", **options | given)
    if (options | given).get("status", "ok") != "ok":
        return run_id
    rng = np.random.default_rng(int(run_id, 16) % 2**32)
    turns = [(f"p{place}", turn) for place in range(6) for turn in (0, 1)]
    tables: dict[str, list[Any]] = {"answers": [], "quality": [], "judgements": [], "variation": []}
    for prompt_id, turn in turns:
        where = {"run_id": run_id, "prompt_id": prompt_id, "turn": turn}
        tables["variation"].append(
            VariationRow(**where, step=0, total_variation=own["variation"], num_trees=64, noise=0.01)
        )
        for arm in (METHOD, AUTOREGRESSIVE):
            mine = {**where, "arm": arm}
            tables["answers"].append(AnswerRow(**mine, question="q", answer="a"))
            fall = own["fall"] if arm == METHOD else 0.0
            likely = -1 - fall + float(rng.uniform(-0.01, 0.01))
            tables["quality"].append(
                QualityRow(**mine, num_words=40, greedy_rouge_l=0.3 - fall / 3, log_likelihood=likely)
            )
            if own["score"] is not None:
                grade = (own["score"] if arm == METHOD else 6.5) + (0.5 if turn else -0.5)
                tables["judgements"].append(judgement(mine, grade, own["judge"]))
    for name, rows in tables.items():
        if rows:
            cells.store.write(name, run_id, rows)
    return run_id


def judgement(where: dict[str, Any], score: float | None, judge: str = "judge-1") -> JudgementRow:
    """What a judge said."""
    error = None if score is not None else "no grade"
    more = {"prompt_version": "1", "error": error, "reply": "r", "created_utc": "2026-01-01"}
    return JudgementRow(**where, score=score, judge=judge, **more)


def fill(cells, **given: Any) -> dict[tuple[str, int, str], str]:
    """All of the table, by draft, width and rule."""
    return {
        (draft, width, rule): add(cells, width, rule, draft, **given)
        for draft in NAMES for width in SCORES for rule in RULES
    }  # fmt: skip
