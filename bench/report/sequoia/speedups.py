"""Sequoia, Tables 3 to 7: speedup and tokens per step, in the paper's layout and with all details."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from bench import published
from bench.records import AUTOREGRESSIVE
from bench.report import definitions, tables
from bench.report.blocks import Block, blocks, scale, setting
from bench.report.outputs import Output
from bench.report.sequoia.arms import seconds_per_token
from bench.report.sequoia.layouts import LAYOUTS, Layout
from bench.report.sequoia.rows import DETAILS, Row, setting_of, settings
from bench.report.tables import Table
from bench.store import Results

PAPER = "sequoia"
_CELLS = "speedup, in parentheses MAL; speedup: {}; MAL: {}".format(
    definitions.SPEEDUP, definitions.MAL.partition("; in brackets")[0]
)
LEGEND = {
    "Tree": definitions.TREE,
    "N": definitions.NODES,
    "levels": definitions.LEVELS,
    "speedup": f"{definitions.SPEEDUP}; in brackets the 95% interval",
    "speedup predicted": definitions.PREDICTED_SPEEDUP,
    "MAL": definitions.MAL,
    "MAL predicted": definitions.PREDICTED_MAL,
    "s/token": definitions.SECONDS_PER_TOKEN,
    "lossless": definitions.LOSSLESS,
    "verdict speedup": definitions.VERDICT,
}


def speedup_table(artifact: str, results: Results) -> list[Output]:
    """One of Tables 3 to 7, twice: as printed, and a row per method with intervals, predictions and verdicts."""
    layout, paper = LAYOUTS[artifact], published.find(PAPER, artifact)
    found = [block.standing_in(paper) for block in blocks(results)]
    rows = [Row(layout, _who(layout, block), setting_of(paper, layout, block), block) for block in found]
    if not found:
        rows = [Row(layout, who, of_setting) for who, of_setting in settings(paper, layout)]
    title = f"{layout.title} ({setting(found) if found else 'not run'})"
    notes = tuple(_notes(artifact, paper, layout, found))
    return [_wide(artifact, title, rows, notes), _details(f"{artifact}_details", title, rows, notes)]


def _wide(name: str, title: str, rows: list[Row], notes: tuple[str, ...]) -> Table:
    lines = [row.wide() for row in rows]
    arms = [arm for arm in rows[0].layout.arms if _shown(arm.header, lines)]
    hidden = {header for arm in rows[0].layout.arms if arm not in arms for header in (arm.header, _beside(arm.header))}
    columns = [column for column in lines[0] if column not in hidden]
    legend = LEGEND | {arms[0].header: _CELLS} if arms else LEGEND
    legend |= {f"{arms[0].header} predicted": f"speedup (MAL): {_predicted()}"} if arms else {}
    return Table(name, title, tables.frame(lines, columns), notes, legend, tuple(row.runs for row in rows))


def _details(name: str, title: str, rows: list[Row], notes: tuple[str, ...]) -> Table:
    layout = rows[0].layout
    lines = [line for row in rows for line in row.details()]
    if layout.seconds:
        absent: set[str] = set()
    else:
        absent = {"s/token", "s/token published"}
    columns = [column for column in (*rows[0].who, *DETAILS) if column not in absent]
    frame = tables.frame([line for line, _ in lines], columns)
    return Table(name, f"{title}, details", frame, notes, LEGEND, tuple(run for _, run in lines))


def _shown(header: str, lines: list[dict[str, str]]) -> bool:
    """Whether an arm has any number: SpecTr is in no table of the paper, and a column only where it was run."""
    return any(line[name] != tables.ABSENT for line in lines for name in (header, _beside(header)))


def _beside(header: str) -> str:
    return f"{header} published"


def _predicted() -> str:
    return f"{definitions.PREDICTED_SPEEDUP} ({definitions.PREDICTED_MAL})"


def _who(layout: Layout, block: Block) -> dict[str, str]:
    target, draft = block.published_as or (block.pair, block.pair)
    if block.stand_in:
        target, draft = f"{block.pair} (for {target})", f"{block.pair} (for {draft})"
    first = block.first
    who = {"Target": target, "Draft": draft, "Dataset": str(first["dataset"])}
    who["temperature"] = f"{first['temperature']:g}"
    return who | ({"top-p": f"{first['top_p']:.1f}"} if layout.top_p else {})


def _notes(artifact: str, paper: pd.DataFrame, layout: Layout, found: list[Block]) -> Iterator[str]:
    for block in found:
        hardware = " / ".join(setting_of(paper, layout, block)["hardware"].unique())
        yield scale(block) + (f" Published: {hardware}." if hardware else " The paper has no numbers for this setting.")
    for pair in dict.fromkeys(block.pair for block in found if block.stand_in):
        yield f"{pair} stands in for the paper's models: absolute values are not comparable; rows are judged by order."
    done = {block.published_as for block in found}
    missing = dict.fromkeys(zip(paper["target"], paper["draft"], strict=True)) if found else {}
    if left := [f"{target} + {draft}" for target, draft in missing if (target, draft) not in done]:
        yield f"Not run: {', '.join(left)}."
    yield from _remarks(artifact, found)


def _remarks(artifact: str, found: list[Block]) -> Iterator[str]:
    """What the paper leaves open, or says in its text."""
    if artifact == "table3":
        yield "The paper states neither dataset nor temperature of Table 3; its numbers stand beside every setting."
    if artifact == "table6":
        yield "One tree for all rules, the children drawn as each rule demands."
    if artifact != "table5":
        return
    plain = published.find(PAPER, "claim_text", method="autoregressive", params="offload=true;system=sequoia_offload")
    for block in found:
        prompts = block.results.prompts[block.results.prompts["run_id"].isin(block.runs["run_id"])]
        seconds = tables.interval(seconds_per_token(prompts, AUTOREGRESSIVE), 4)
        yield (
            f"Offloaded without a tree, {block.name}: {seconds} s/token; "
            f"the paper's text: {plain['value'].iloc[0]:g} s/token (Llama-2-70B, L40)."
        )
