"""From what was measured to rows, and from rows to the aggregates of a cell."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from specdec_core.engine import Generation
from specdec_core.models.graphs import EAGER
from specdec_trees.measure import provenance
from specdec_trees.measure.cell_run import CellRun
from specdec_trees.names import without_paths
from specdec_trees.prompts import datasets
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.blocks import Blocks, total
from specdec_trees.results.digests import output_sha256
from specdec_trees.results.instrument_rows import AnswerRow, MaskRow, NodeRow, QualityRow, RuleRow, VariationRow
from specdec_trees.results.parquet import frame
from specdec_trees.results.rows import (
    AUTOREGRESSIVE,
    METHOD,
    OF_STEPS,
    SCHEMA_VERSION,
    PromptRow,
    RunRow,
    StepRow,
)
from specdec_trees.statistics.aggregates import STEP_COLUMNS, aggregates


@dataclass(slots=True)
class Rows:
    """The rows of a cell so far."""

    prompts: list[PromptRow] = field(default_factory=list)
    steps: Blocks = field(default_factory=lambda: Blocks(StepRow))
    nodes: Blocks = field(default_factory=lambda: Blocks(NodeRow))
    masks: Blocks = field(default_factory=lambda: Blocks(MaskRow))
    variation: Blocks = field(default_factory=lambda: Blocks(VariationRow))
    rules: Blocks = field(default_factory=lambda: Blocks(RuleRow))
    quality: list[QualityRow] = field(default_factory=list)
    answers: list[AnswerRow] = field(default_factory=list)
    start: int = 1
    """Of the cell, which decodes what comes next."""
    lender: str | None = None
    """The first run whose autoregressive rows this one has."""

    def context(self) -> int:
        """Tokens that the cache held for a decoded token, mean."""
        tokens = sum(row.num_new_tokens for row in self.prompts)
        held = sum(row.num_new_tokens * (row.num_prompt_tokens + row.num_new_tokens / 2) for row in self.prompts)
        return round(held / max(tokens, 1))

    def running(self) -> str:
        """MAL and speedup so far, for the progress bar."""
        length = total(self.steps, "acceptance_length")
        per_token = {arm: self._seconds_per_token(arm) for arm in (METHOD, AUTOREGRESSIVE)}
        text = f"MAL {length / max(len(self.steps), 1):.2f}"
        if all(per_token.values()):
            text += f", speedup {per_token[AUTOREGRESSIVE] / per_token[METHOD]:.2f}x"
        return text

    def aggregates(self) -> dict[str, Any]:
        """The columns of `runs` that follow from the other tables; None where there is nothing to average."""
        names = [name for name in PromptRow.__annotations__ if name != "output_ids"]
        prompts = frame([Blocks(PromptRow, self.prompts).only(names)], PromptRow, names)
        return aggregates(prompts, frame([self.steps.only(STEP_COLUMNS)], StepRow, STEP_COLUMNS))

    def settle(self) -> None:
        """Keep the rows of steps as columns."""
        for name in OF_STEPS:
            getattr(self, name).settle()

    def _seconds_per_token(self, arm: str) -> float:
        rows = [row for row in self.prompts if row.arm == arm]
        return sum(row.decode_s for row in rows) / max(sum(row.num_decoded_tokens for row in rows), 1)


@dataclass(slots=True)
class Outcome:
    """How a cell ended, and what was learnt on the way."""

    status: str = "ok"
    error: str | None = None
    device: str | None = None
    dtype: str | None = None
    attention: str | None = None
    attention_kernels: str | None = None
    graphs: str = EAGER
    target_revision: str | None = None
    draft_revision: str | None = None
    prompts_sha256: str = ""
    prompt_ids_sha256: str | None = None
    template_date: str | None = None
    draws: str = ""
    lossless: bool = False
    excerpt: str | None = None
    other_load: float | None = None
    limit_tokens_per_s: float | None = None
    waits_per_step: float | None = None
    launches_per_step: float | None = None
    baseline_of: str | None = None
    recording: str | None = None


def prompt_row(
    run_id: str,
    conversation: Conversation,
    turn: int,
    arm: str,
    prompt: Sequence[int],
    generation: Generation,
    *,
    start: int | None = None,
    **more: Any,
) -> PromptRow:
    """One decoded turn in one arm; `more` are the columns about the autoregressive output, and about the GPU."""
    return PromptRow(
        run_id=run_id,
        prompt_id=conversation.id,
        category=conversation.category,
        turn=turn,
        arm=arm,
        status="ok",
        error=None,
        num_prompt_tokens=len(prompt),
        prompt_ids_sha256=output_sha256(prompt) if prompt else None,
        num_new_tokens=len(generation.tokens),
        num_decoded_tokens=sum(step.kept for step in generation.steps),
        num_steps=len(generation.steps),
        finish=generation.finish,
        prefill_s=generation.prefill_s,
        decode_s=generation.decode_s,
        output_sha256=output_sha256(generation.tokens),
        output_ids=[_TOKENS.setdefault(token, token) for token in generation.tokens],
        wall_s=generation.wall_s,
        start=start,
        **more,
    )


def failed_row(run_id: str, conversation: Conversation, turn: int, error: Exception, start: int) -> PromptRow:
    """A turn that could not be decoded: its figures are zero and enter no average."""
    nothing = Generation([], "failed", [], 0.0, 0.0)
    row = prompt_row(run_id, conversation, turn, METHOD, [], nothing, start=start, **NO_AUDIT)
    return PromptRow(**asdict(row) | {"status": "failed", "error": without_paths(str(error))})


_TOKENS: dict[int, int] = {}
"""Ids that outputs have, so that equal ones are one object: an output of many tokens is then a quarter as large."""
NO_AUDIT: dict[str, Any] = {"identical": None, "first_divergence": None, "divergence_gap": None}


def step_rows(run_id: str, conversation: Conversation, turn: int, generation: Generation) -> Iterator[StepRow]:
    """One row per decoding step; facts that no column is for are left out."""
    for number, step in enumerate(generation.steps):
        columns = asdict(step)
        told = {name: value for name, value in columns.pop("facts").items() if name in StepRow.__annotations__}
        yield StepRow(run_id=run_id, prompt_id=conversation.id, turn=turn, step=number, **columns, **told)


def run_row(run: CellRun, rows: Rows, outcome: Outcome) -> RunRow:
    """The row that marks a cell as run."""
    cell, runtime = run.cell, run.runtime
    target, draft = cell.pair.target, cell.pair.draft
    attention = outcome.attention or runtime.attention
    origin: dict[str, Any] = provenance.collect(
        outcome.device or "cpu", outcome.dtype or runtime.dtype, attention, runtime.placement
    )
    return RunRow(
        run_id=cell.run_id,
        schema_version=SCHEMA_VERSION,
        experiment=cell.experiment,
        status=outcome.status,
        error=outcome.error,
        created_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        pair=cell.pair.name,
        target_id=target.id,
        target_revision=outcome.target_revision or target.revision,
        draft_id=draft.id if draft else None,
        draft_revision=outcome.draft_revision or (draft.revision if draft else None),
        dataset=cell.dataset.name,
        dataset_id=datasets.source_id(cell.dataset, runtime.data_dir) if outcome.prompts_sha256 else cell.dataset.name,
        prompts_sha256=outcome.prompts_sha256,
        prompt_ids_sha256=outcome.prompt_ids_sha256,
        template_date=outcome.template_date,
        drafter=cell.drafter,
        method=cell.method,
        drafter_params=json.dumps(cell.drafter_params, sort_keys=True),
        draws=outcome.draws,
        verifier=cell.verifier,
        lossless=outcome.lossless,
        temperature=cell.sampling.temperature,
        top_p=cell.sampling.top_p,
        seed=cell.seed,
        max_new_tokens=cell.max_new_tokens,
        config=json.dumps(cell.config, sort_keys=True),
        ignore_eos=cell.ignore_eos,
        node_order=runtime.node_order,
        graphs=outcome.graphs,
        predicted_mal=cell.predicted_mal,
        predicted_speedup=cell.predicted_speedup,
        excerpt=outcome.excerpt,
        other_load=outcome.other_load,
        num_starts=rows.start,
        limit_tokens_per_s=outcome.limit_tokens_per_s,
        waits_per_step=outcome.waits_per_step,
        launches_per_step=outcome.launches_per_step,
        attention_kernels=outcome.attention_kernels,
        baseline_of=outcome.baseline_of,
        recording=outcome.recording,
        **rows.aggregates(),
        **origin,
    )
