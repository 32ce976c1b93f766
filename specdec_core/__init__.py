"""Tree-based speculative decoding: one decode loop, many ways to grow a tree and to judge it.

Glossary
--------
target p, draft q     the model to be accelerated and the cheap model; `p` and `q` are their next-token distributions
root                  node 0 of every tree: the last committed token, accepted by definition
pending / virtual     a root whose keys and values the target has yet to compute / has already, with p after it
tree size n, budget   number of drafted nodes, root excluded
depth                 edges from the root; the root has depth 0
path probability      product of draft probabilities from the root to a node; 1 at the root
E(A)                  expected acceptance length, root counted: sum of path probabilities over all distinct paths
                      (independent draws may repeat a token: it counts once); never above depth + 1, and absent where
                      edges are no probabilities
acceptance length A   new tokens of one decoding step: accepted drafted tokens + 1 bonus or recovered token
decoding step         one target forward after prefill
MAL                   sum of A / decoding steps; the token drawn from the prefill belongs to no step, and an answer's
                      last step counts whole, also beyond `max_new_tokens`
bonus / recovered     the token the target adds after a fully accepted path / after a rejection
lossless              greedy: the target's own tokens; sampling: the target's own distribution
draws                 how a drafter picks children: `topk`, `iid`, `without_replacement`, `greedy_one`
token graph           drafted candidates (`records`) with merge edges: an *alias*, whose last tau tokens ended at an
                      earlier node already, goes on as that node does; *unmerged* to a tree before it is verified

Shapes
------
`records` (of a token graph, root included), `nodes` (of a tree, root included unless said), `vocab`, `prefix`
(committed tokens in a cache), `depth`, `hidden`.
"""

from specdec_core import openmp as openmp  # before torch
from specdec_core.engine import Generation, Step, generate
from specdec_core.errors import SpecdecError
from specdec_core.models import CausalLM, load_pair
from specdec_core.sampling import Sampling
from specdec_core.shapes import TreeShape
from specdec_core.tree import TokenTree, Verdict

__all__ = [
    "CausalLM",
    "Generation",
    "Sampling",
    "SpecdecError",
    "Step",
    "TokenTree",
    "TreeShape",
    "Verdict",
    "generate",
    "load_pair",
]
