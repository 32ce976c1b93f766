"""What the headers of tables mean, once for all tables; how papers count; and methods as they print them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from specdec_trees.statistics import intervals

MAL = (
    "mean acceptance length (MAL): new tokens / decoding steps, pooled over prompts, bonus token counted, the "
    f"last step of an answer in full; in brackets the 95% interval ({intervals.METHOD} over conversations), in "
    "parentheses from where to where fewer than six reach"
)
EXPECTED_MAL = (
    "MAL of the replayed conversations, averaged over all that draft and rule might draw, given the target's answers; "
    "it rests on fewer conversations than MAL where others were decoded"
)
EXPECTED = (
    "mean expected acceptance length: sum of the draft's probabilities of all distinct paths, root counted; never "
    "above depth + 1, and absent where the drafter has no probabilities"
)
SIZE = "drafted nodes a step, root excluded"
TOKENS_PER_S = "decoded tokens per second of decoding, prefill excluded"
OWN_AUTOREGRESSIVE = "tokens/s of the autoregressive arm of the same run, on which its speedup rests"
SPEEDUP = "decoding time per token, autoregressive / method, paired: same prompts, process and device"
CONTROLLED_SPEEDUP = f"{SPEEDUP}; the autoregressive row is set against itself and shows what the machine can resolve"
LOSSLESS = (
    "whether the rule is declared to keep the target's output distribution for the way its drafter draws, which tests "
    "sum exactly; rows of greedy decoding show it of their own outputs (identical)"
)
IDENTICAL = "share of outputs equal to the autoregressive output token for token (temperature 0)"
UNCORRECTED = (
    "(uncorrected): decided at 95% for itself, but not after Holm's correction for the number of this table's verdicts"
)
VERDICT = (
    "by one written rule (specdec_trees/artifacts/verdict.py): matches, order holds, differs (the opposite order, or "
    "no lead where the paper has one), not resolved (by so few conversations), not comparable, or not run; "
    f"{UNCORRECTED}"
)
BONUS = "bonus token counted"
NODES = "drafted nodes + 1: the paper counts the root"
LEVELS = "depth of the deepest node + 1"
SECONDS_PER_TOKEN = "seconds of decoding / decoded token, prefill excluded; in brackets the 95% interval"
ACCEPTED_CHILD = "P_k: probability that one of the k children of an accepted node is accepted"
EXPECTED_TREE = (
    "expected tokens per step F(T) = sum over nodes of the product of p_position on their path, root counted"
)
PREDICTED_MAL = "F(T) of the run's static tree at the measured acceptance vector"
PREDICTED_ELSEWHERE = (
    "every step of the run's own rows, priced by times of forwards on that machine (specdec_trees/speed/predicted.py), "
    "or on a card by its data sheet; conversations that replays add to a run that was decoded are not counted"
)
PREDICTED_SPEEDUP = (
    "G(n, d) / (t(n + 1) + d c) from the measured vector and forward times (Sequoia, Equation 1), which leaves out "
    "what a step takes outside forwards"
)
RATIO = (
    "{} over {}, paired over the conversations that both decoded; in parentheses which is ahead: neither where 1 lies "
    "within the 95% interval in brackets "
    f"({intervals.METHOD} over conversations) or, of times, the runs' autoregressive arms "
    "lie as far apart; the paper's by value alone"
)
# of token graphs (GSD), from specdec_trees/statistics/graph_metrics.py; what the paper leaves open is said
_COUNTED = "mean over samples (prompts) of the sum over steps, for 512 generated tokens; in brackets the 95% interval"
ACCEPTANCE_RATE = (
    "mean over samples of accepted drafted tokens / draft forwards, bonus token excluded; it can exceed 1 where an "
    "accepted path leads behind a merge edge, or a draft forward gives several levels (Medusa); in brackets the 95% "
    f"interval ({intervals.METHOD} over conversations)"
)
DRAFTED_TOKENS = (
    "nodes that go on (live) + nodes that end for theta_prob + one root a step, nodes pruned beside a sibling and "
    f"merge edges left out: what the paper's counts fit, which it does not define; {_COUNTED}"
)
CREATED = (
    f"all drafted nodes but redundant ones: live + ended for theta_prob + pruned beside a sibling, no root; {_COUNTED}"
)
ALIASES = f"redundant candidates, each a merge edge of the graph; {_COUNTED}"
SIB_LEAVES = f"nodes pruned beside a better sibling (theta_sib); {_COUNTED}"
VERIFIED = f"nodes of the unmerged trees that the target read, root excluded; {_COUNTED}"
CAPPED = (
    "share of the steps in which the cap of verified nodes cut the unmerged tree; what the limit of its depth "
    "alone cuts does not count"
)
GRAPH_SUCCESS = (
    "share of all steps that accept a token whose place in the verified tree is not that in the graph, as the paper's "
    "code counts: merged tokens and what the tree lists behind them. The paper's words are those of: crosses a merge"
)
CROSSED = (
    "share of all steps whose accepted path has a token behind a merge edge, merge edges alone not counted: what the "
    "paper calls nodes from merged subtrees"
)
SHARED_SUCCESS = (
    "share of all steps whose accepted path has a token below a node that others are merged into, whether it comes "
    "there by the node's own path or across a merge edge: the wider reading of the paper's nodes from merged subtrees"
)
MEAN_SPEEDUP = (
    "mean of the speedups of greedy and of top-p decoding, paired over the conversations that both decoded, as the "
    "paper gives it"
)
VARIATION = (
    "total variation between the distribution of a step's first token under the rule and the target's own, exact for "
    "the drafted tree, mean over steps, in brackets the 95% interval; not for lossless rules, which keep the target's, "
    "nor for drawn trees, over which the rule's is a mean"
)
# of improved MCSD, from specdec_trees/statistics/metrics.py
ALPHA = (
    "accepted draft tokens / (steps x draft levels at most): the target's own first token and level are left out; in "
    "brackets the 95% interval "
    f"({intervals.METHOD} over conversations). MAL = 1 + alpha x levels, but for paths that end in EOS"
)
ALPHA_DRAFTED = (
    "accepted draft tokens / draft levels that were there: alpha where the tree never ends early, else above it; in "
    "brackets the 95% interval"
)
DRAFT_NODES = "nodes that the draft adds to a tree, mean over steps"
VERIFIED_ROWS = "tokens in the target's forward, mean over steps: the tree, and the last token where it is the root"

_LABELS = {
    "best_first": "best-first tree",
    "branching": "MCSD",
    "dynamic_mcsd": "dynamic MCSD",
    "dyspec": "DySpec",
    "dyspec_heap": "DySpec, node by node",
    "dyspec_threshold": "DySpec, threshold",
    "eagle_tree": "EAGLE's tree",
    "eagle2": "EAGLE-2",
    "gsd": "GSD",
    "gsd_code": "GSD, pruned as its code does",
    "gsd_leaves": "GSD, pruned nodes as leaves",
    "k_ary": "k-ary tree",
    "mcsd": "MCSD",
    "medusa": "Medusa",
    "opt_tree": "OPT-Tree",
    "prompt_lookup_tree": "prompt lookup, tree",
    "sd": "SD",
    "sequoia": "Sequoia",
    "sequoia_hardware": "Sequoia, hardware-aware",
    "sequoia_printed": "Sequoia, printed size",
    "sixteen_sequences": "16 sequences",
    "spec_infer": "SpecInfer",
    "spec_infer_merged": "SpecInfer, merged",
    "ssd": "SSD",
    "ssd_adaptive": "SSD, adaptive exit",
    "ssd_iid": "SSD, drawn",
    "ssd_noexit": "SSD, no exit",
    "suffix_decoding_adaptive": "suffix decoding, adaptive size",
    "target_init_mcsd": "target-initialised MCSD",
    "tsd": "TSD",
    "tsd_sib": "TSD, sibling pruning",
}
_LENGTH = re.compile(r"\bMAL\b")
_USUAL = ("MAL", "new tokens/step, bonus counted")
_LENGTHS = {"sequoia": ("tokens/step", "bonus counted"), "dyspec": ("tokens/step", "accepted, bonus counted")}
"""What the papers call MAL and how they count it, where it is not as usual."""
_COUNTS: Mapping[str, Mapping[str, str]] = {
    "opt_tree": {
        "expected_acceptance": "expected tokens/step, root counted",
        "mal_as_published": "new tokens/(steps - 1)",
    },
    "sequoia": {"expected_tree": "expected tokens/step, root counted"},
    "dyspec": {"mal_without_bonus": "accepted, bonus not counted"},
    "gsd": {"acceptance_rate": "accepted/draft forward, bonus not counted"},
    "improving_mcsd": {
        **dict.fromkeys(("alpha", "alpha_max"), "accepted/most draft levels, bonus not counted"),
        "alpha_drafted": "accepted/draft levels, bonus not counted",
    },
}
"""How the papers count what else a column may hold, by its key."""
_RULES = {
    "block": "of a chain, as a block",
    "chain": "of a chain",
    "eagle1": "EAGLE's",
    "gbv": "greedy multi-path block",
    "greedy": "greedy",
    "greedy_one": "for one draw and the best tokens",
    "gsd_nondeterministic": "GSD's, not deterministic",
    "gsd_nondeterministic_code": "GSD's, as in its code",
    "independent_longest": "improved MCSD's, lossy",
    "k_seq": "SpecTr's K-SEQ",
    "longest_subtree": "improved MCSD's, one first token",
    "multi_candidate": "MCSD's, without replacement",
    "multi_candidate_iid": "MCSD's, with replacement",
    "spec_hub": "SpecHub's",
    "spec_infer": "SpecInfer's",
    "target_sample": "target sampling",
    "traversal": "Traversal",
    "traversal_greedy": "Traversal, one draw and the best tokens",
    "traversal_iid": "Traversal, independent draws",
    "without_replacement": "Sequoia's",
}


def rule_label(verifier: str) -> str:
    """What a rule of acceptance is called in tables; one that is not known by its own name."""
    return _RULES.get(verifier, verifier)


def differing(own: Mapping[str, Any], alike: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Those arguments of a drafter in which any of these others have another value, with its own in words.

    A structure is called by its `kind`; one that has none is left out.
    """
    others = list(alike)
    values = {key: value for key, value in own.items() if any(one.get(key) != value for one in others)}
    words = {key: value.get("kind") if isinstance(value, Mapping) else value for key, value in values.items()}
    named = {key: word for key, word in words.items() if not isinstance(word, list)}
    return {key: str(word) for key, word in named.items() if word is not None or not isinstance(own[key], Mapping)}


ROWS = {
    "bar": "Line",
    "configuration": "Configuration",
    "dataset": "Dataset",
    "draft_words": "Draft",
    "first": "First tokens",
    "kind": "Kind",
    "label": "Method",
    "line": "Line",
    "lossless_words": "lossless",
    "name": "Method",
    "pair": "Pair",
    "panel": "Pair",
    "rule": "Rule",
    "setting": "Setting",
    "size_words": "Tree size n",
    "span": "draft probability",
    "target_words": "Target",
    "top_p": "top-p",
    "tree": "Tree",
    "who": "Method",
}
"""What stands above the columns that say what a row is of, if not the column's name."""


def length(paper: str) -> str:
    """What a paper calls MAL."""
    return _LENGTHS.get(paper, _USUAL)[0]


def worded(paper: str, text: str) -> str:
    """A sentence with what the paper calls MAL."""
    return _LENGTH.sub(length(paper), text)


def counted(paper: str, headers: Mapping[str, str]) -> dict[str, str]:
    """Headers by key in the paper's words, with how it counts where they do not say it by themselves."""
    word, usual = _LENGTHS.get(paper, _USUAL)
    counts = {"mal": usual} | dict(_COUNTS.get(paper, {}))
    ends = {key: f" ({counts[key]})" if key in counts else "" for key in headers}
    return {key: _LENGTH.sub(word, header) + ends[key] for key, header in headers.items()}


def method_label(method: str) -> str:
    """The method as its field writes it; a name that is not known here stands in words."""
    return _LABELS.get(method, method.replace("_", " "))


def drafter_label(method: str, params: Mapping[str, Any]) -> str:
    """The method and the size or shape of its trees: `OPT-Tree, n = 50`, `chain of 4`, `MCSD 4-2-2-1`."""
    shape = params.get("shape")
    match shape if isinstance(shape, dict) else params:
        case {"widths": [*widths]}:
            more = f" {'-'.join(map(str, widths))}"
        case {"num_sequences": sequences, "depth": depth}:
            more = f", {sequences} sequences of {depth}"
        case {"branching": _, "depth": depth}:
            more = f", depth {depth}"
        case {"n": int(n)} | {"size": int(n)}:
            more = f", n = {n}"
        case {"total": int(total)}:
            more = f", n = {total - 1}"  # the root is counted
        case {"width": width}:
            more = f", W = {width}"
        case {"_target_": _, "depth": depth}:
            more = f" of {depth}"
        case _:
            more = ""
    return method_label(method) + more
