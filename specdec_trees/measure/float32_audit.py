"""A cell's first prompts once more in float32, where rounding hides nothing: an audit of half precision."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from specdec_core.models import Pair
from specdec_core.models.memory import free_bytes
from specdec_trees.measure.audit import divergence
from specdec_trees.measure.cell import Cell, Runtime
from specdec_trees.measure.decoding import Decoding
from specdec_trees.measure.pairs import collect
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, PromptRow
from specdec_trees.results.ties import is_tie

log = logging.getLogger(__name__)
PROMPTS, TOKENS = 2, 64
"""First turns that are decoded again, and of how many new tokens at most."""
MARGIN = 2.0
"""Of the memory that the weights take in addition: keys, values and activations grow with them."""


def audit_in_float32(
    cell: Cell, pair: Pair, runtime: Runtime, prompts: list[PromptRow], conversations: Sequence[Conversation]
) -> None:
    """Decode first turns of a greedy lossless cell again, and note in the method's rows whether both arms agree.

    Arms that part at a tie of float32 agree. Rows say nothing where no baseline was decoded, and of models that cannot
    be float32 here: compiled, quantised, streamed or spread ones, and those that memory does not suffice for.
    """
    places = {row.prompt_id: place for place, row in enumerate(prompts) if row.arm == METHOD and row.turn == 0}
    audited = [one for one in conversations if one.id in places and prompts[places[one.id]].identical is not None]
    if not audited or pair.target.dtype.itemsize > 2 or _fixed(cell, pair, runtime):
        return
    try:
        with pair.in_float32():
            decoding = Decoding(cell, pair, runtime)
            for conversation in audited[:PROMPTS]:
                place = places[conversation.id]
                prompts[place] = replace(prompts[place], identical_float32=_agree(decoding, conversation))
    finally:
        collect()


def _agree(decoding: Decoding, conversation: Conversation) -> bool:
    """Whether the method's first answer is the target's own, but for ties of float32."""
    turn = decoding.turn(conversation, 0, [])
    length = min(turn.max_new_tokens, TOKENS)
    output, reference = (decoding.decode(turn, arm, length).tokens for arm in (METHOD, AUTOREGRESSIVE))
    parted = divergence(decoding.pair.target, turn.prompt, output, reference)
    return parted is None or is_tie(parted.gap, parted.largest_logit, "float32")


def _fixed(cell: Cell, pair: Pair, runtime: Runtime) -> bool:
    """Whether the weights have to stay in the dtype that they are in."""
    specs = [spec for spec in (cell.pair.target, cell.pair.draft) if spec]
    quantised = any(spec.bits for spec in specs) or hasattr(pair.target.model.config, "quantization_config")
    packed = pair.graphs and pair.target.device.type == "cpu"
    if runtime.placement or pair.offload or packed or quantised:
        return True
    collect()
    free = free_bytes(pair.target.device)
    short = free is not None and free < MARGIN * sum(tensor.nbytes for tensor in pair.halves)
    if short:
        log.info("%s: too little memory is free for an audit in float32", cell.label)
    return short
