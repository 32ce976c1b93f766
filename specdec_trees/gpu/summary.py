"""What `specdec_trees.gpu` says: rows of its cells as plain values, and those as one table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from specdec_core.models import Pair
from specdec_trees.artifacts import definitions, tables
from specdec_trees.artifacts.metrics import SPEEDS
from specdec_trees.artifacts.tables import Table
from specdec_trees.measure.bandwidth import bytes_per_token
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import Store
from specdec_trees.statistics import metrics, samples
from specdec_trees.statistics.intervals import Interval

COLUMNS = (
    *("Method", "temperature", "MAL", "E(A)", *(speed.header for speed in SPEEDS), "speedup", "identical"),
    *("ms per step", *(f"{phase} ms" for phase in metrics.PHASES)),
)
LEGEND = {
    "MAL": definitions.MAL,
    "E(A)": definitions.EXPECTED,
    **{speed.header: speed.means for speed in SPEEDS},
    "speedup": "decoding time per token, autoregressive / method, paired: same prompts, process and device; in "
    "brackets the 95% interval",
    "identical": definitions.IDENTICAL,
}


def method_row(store: Store, run_id: str) -> dict[str, Any]:
    """One cell: how it ended, MAL, tokens per second, speedup with their intervals, and where a step's time went."""
    run = store.read("runs", [run_id]).iloc[-1]
    steps, prompts = store.read("steps", [run_id]), store.read("prompts", [run_id])
    phases = metrics.phase_times(steps)[list(metrics.PHASES)]
    return {
        "run_id": run_id,
        "drafter": run["drafter"],
        "verifier": run["verifier"],
        "temperature": float(run["temperature"]),
        "status": run["status"],
        "error": None if pd.isna(run["error"]) else str(run["error"]),
        "mal": _plain(samples.interval(samples.mal(steps))),
        "expected_acceptance": _number(metrics.expected_acceptance(steps)),
        "tokens_per_s": _plain(samples.interval(samples.tokens_per_s(prompts))),
        "autoregressive_tokens_per_s": _number(metrics.tokens_per_s(prompts, AUTOREGRESSIVE)),
        "speedup": _plain(samples.interval(samples.speedup(prompts))),
        "identical": _number(run["identical"]),
        "num_drafted": _number(steps["num_drafted"].mean()),
        "step_ms": _number(1e3 * float(phases.sum())),
        **{f"{phase}_ms": _number(1e3 * value) for phase, value in phases.items()},
    }


def autoregressive(store: Store, run_ids: Sequence[str], pair: Pair, copy: float | None) -> dict[str, Any]:
    """The autoregressive arms of all cells together, and how near they come to the device's copy bandwidth."""
    prompts = store.read("prompts", run_ids)
    arm = prompts[(prompts["arm"] == AUTOREGRESSIVE) & (prompts["status"] == "ok")]
    speed = _number(metrics.tokens_per_s(arm, AUTOREGRESSIVE))
    if speed is None:
        return {}
    context = float((arm["num_prompt_tokens"] + arm["num_new_tokens"] / 2).mean())
    size = bytes_per_token(pair, round(context))
    return {
        "tokens_per_s": speed,
        "step_ms": _number(1e3 * metrics.target_step_s(arm)),
        "num_decoded_tokens": int(arm["num_decoded_tokens"].sum()),
        "mean_context_tokens": context,
        "bytes_per_token": size,
        "share_of_copy_bandwidth": _number(size * speed / copy) if copy else None,
    }


def table(report: Mapping[str, Any]) -> Table:
    """All methods behind the autoregressive arm; what was left out stands below."""
    base, device = report.get("autoregressive") or {}, report.get("device") or {}
    rows = [{"Method": "autoregressive", "MAL": "1.00", "tokens/s": tables.number(base.get("tokens_per_s"), 1)}]
    rows[0] |= {"speedup": "1.00", "ms per step": tables.number(base.get("step_ms"), 1)}
    rows += [_row(method) for method in report.get("methods", ())]
    frame = tables.frame([{column: row.get(column, tables.ABSENT) for column in COLUMNS} for row in rows], COLUMNS)
    pair = report["pair"]
    words = f"{pair['name']}{' (synthetic: random weights, planted agreement)' if pair['synthetic'] else ''}"
    title = f"{words}, {device.get('dtype')} on {device.get('device_name')}"
    return Table("gpu", title, frame, tuple(_notes(report)), LEGEND)


def _notes(report: Mapping[str, Any]) -> list[str]:
    base, copy, tests = (report.get(key) or {} for key in ("autoregressive", "copy", "tests"))
    notes = []
    if base and copy:
        share, speed = tables.percent(base["share_of_copy_bandwidth"]), copy["bytes_per_s"] / 1e12
        notes.append(
            f"The autoregressive arm reads {base['bytes_per_token'] / 1e9:.3g} GB per token, "
            f"{base['tokens_per_s']:.1f} tokens/s: {share} of the {speed:.3g} TB/s that a copy reads and writes here."
        )
    if base:
        notes.append("tokens/s of None: all autoregressive arms together; speedups: paired within each row.")
    if tests:
        notes.append(
            "GPU tests: " + ", ".join(f"{tests.get(key, 0)} {key}" for key in ("passed", "failed", "skipped")) + "."
        )
    left = [f"{left['what']} ({left['reason']})" for left in report.get("left_out", ())]
    return notes + ([f"Left out: {', '.join(left)}."] if left else [])


def _row(method: Mapping[str, Any]) -> dict[str, str]:
    name = ", ".join(filter(None, (method["drafter"], method["how"])))
    row = {"Method": name, "temperature": f"{method['temperature']:g}"}
    if method["status"] != "ok":
        return row | {"MAL": method["status"]}
    row |= {"MAL": _cell(method["mal"]), "E(A)": tables.number(method["expected_acceptance"])}
    own = (method["tokens_per_s"] or {}).get("value"), method["autoregressive_tokens_per_s"]
    row |= dict(zip((speed.header for speed in SPEEDS), (tables.number(speed, 1) for speed in own), strict=True))
    row |= {"speedup": _cell(method["speedup"]), "identical": tables.percent(method["identical"])}
    times = {f"{phase} ms": tables.number(method[f"{phase}_ms"], 1) for phase in metrics.PHASES}
    return row | {"ms per step": tables.number(method["step_ms"], 1)} | times


def _cell(interval: Mapping[str, Any] | None) -> str:
    if interval is None:
        return tables.ABSENT
    low, high = (math.nan if interval[key] is None else interval[key] for key in ("low", "high"))
    return tables.interval(Interval(interval["value"], low, high, interval["n"]))


def _plain(interval: Interval) -> dict[str, Any] | None:
    if math.isnan(interval.value):
        return None
    return {"value": interval.value, "low": _number(interval.low), "high": _number(interval.high), "n": interval.n}


def _number(value: Any) -> float | None:
    """JSON knows no nan."""
    return None if value is None or pd.isna(value) or math.isinf(value) else float(value)
