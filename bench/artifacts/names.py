"""Methods as the papers print them."""

from __future__ import annotations

_LABELS = {
    "autoregressive": "None (autoregressive)",
    "binary": "Binary",
    "chain": "Chain",
    "dyspec": "DySpec",
    "dyspec_threshold": "DySpec, threshold",
    "eagle_tree": "EAGLE tree",
    "eagle2": "EAGLE-2",
    "gsd": "GSD",
    "opt_tree": "OPT-Tree",
    "k_sequences": "K sequences",
    "prompt_lookup": "Prompt lookup",
    "prompt_lookup_tree": "Prompt lookup, tree",
    "sequoia": "Sequoia",
    "sequoia_hardware": "Sequoia, hardware-aware",
    "sequoia_printed": "Sequoia, printed tree",
    "spec_infer": "SpecInfer",
    "ssd": "SSD",
    "ssd_iid": "SSD, drawn",
    "ssd_noexit": "SSD, no exit",
    "tsd": "TSD",
    "tsd_sib": "TSD, sibling pruning",
}


def method_label(method: str) -> str:
    """The method as the papers print it; a name they do not know stands as it is."""
    return _LABELS.get(method, method)
