"""Distribution of the first token, given a tree: small trees, and the rules' draws summed from the papers' words."""

from collections import Counter, defaultdict
from itertools import product

import torch
from played_forks import mcsd, table

from specdec_core import TokenTree
from specdec_core.models import ModelOutput
from specdec_core.verifiers import IndependentLongest, LongestSubtree

TREES = {
    "fork": [-1, 0, 0, 0, 1, 2, 3, 4, 5, 6],
    "ended_early": [-1, 0, 0, 0, 1, 2, 3],
    "bare": [-1, 0, 0, 2, 2],
    "unequal": [-1, 0, 0, 0, 1, 2, 2, 4, 5, 5, 7],
    "leaf_first": [-1, 0, 0, 0, 2, 3, 3, 4, 5],
    "siblings": [-1, 0, 0, 1, 1, 1, 2, 2, 3, 4, 6],
    "one": [-1, 0, 1, 1, 2],
}


def fixed_tree(name, seed, vocab=6, holes=True):
    """A tree of tokens from bigram tables; siblings differ, some were drawn behind the support of q."""
    rng = torch.Generator().manual_seed(seed)
    parents = torch.tensor(TREES[name])
    p, q = table(seed, vocab, 2.0), table(seed + 100, vocab, 2.0)
    if holes:
        p[2, 3] = q[1, 2] = q[4, 1] = q[3, 0] = -torch.inf
    tokens = [5]
    for node, parent in enumerate(TREES[name][1:], 1):
        taken = {tokens[other] for other in range(1, node) if TREES[name][other] == parent}
        free = [token for token in range(vocab) if token not in taken]
        tokens.append(free[int(torch.randint(len(free), (), generator=rng))])
    tokens, probs = torch.tensor(tokens), q.softmax(-1)
    edges = probs[tokens[parents], tokens]
    edges[0] = 1
    inner = torch.bincount(parents[1:], minlength=len(parents)) > 0
    inner[0] = False
    tree = TokenTree(tokens, parents, edges, probs[tokens], torch.where(inner, torch.arange(len(parents)), -1))
    root = p[5].softmax(-1)
    return tree, ModelOutput(torch.cat((root.log()[None], p[tokens[1:]])), None, root), p, q


def children_of(tree):
    below = defaultdict(list)
    for node, parent in enumerate(tree.parents.tolist()):
        below[parent].append(node)
    return below


def in_path_order(tree):
    """Paths to the leaves without the root, depth first."""
    below, found = children_of(tree), []

    def visit(node, path):
        if not below[node]:
            found.append(path)
        for child in below[node]:
            visit(child, (*path, child))

    visit(0, ())
    return found


def flagged_probs(tree, accept):
    """Spec 3.4 word for word: all patterns of flags; the path of most leading flagged nodes, the first such."""
    paths, probs = in_path_order(tree), Counter()
    drafted = [node for node in range(1, tree.num_nodes) if int(tree.parents[node])]
    for pattern in product((True, False), repeat=len(drafted)):
        flags, chance = dict(zip(drafted, pattern, strict=True)), 1.0
        for node, flag in flags.items():
            chance *= accept[node] if flag else 1 - accept[node]
        if not chance:
            continue
        lengths = [next((n for n, node in enumerate(path[1:]) if not flags[node]), len(path) - 1) for path in paths]
        probs[int(tree.tokens[paths[lengths.index(max(lengths))][0]])] += chance
    return [probs[token] for token in range(6)]


def flag_chances(tree, p, q, *, greedy=False):
    """u q < p with the distribution that q was before any sibling, nothing where q has none; greedy: the best token."""
    tokens, accept = tree.tokens.tolist(), {}
    for node, parent in enumerate(tree.parents.tolist()):
        wanted, drawn = (logits.double().softmax(-1)[tokens[parent], tokens[node]].item() for logits in (p, q))
        if greedy:
            wanted = float(int(p[tokens[parent]].argmax()) == tokens[node])
        accept[node] = min(1.0, wanted / drawn) if drawn > 0 else 0.0
    return accept


def subtree_probs(tree, p, q, *, greedy=False):
    """Walks below every first token on their own, child by child; all combinations of their lengths."""
    below, tokens = children_of(tree), tree.tokens.tolist()
    p, q = (logits.double().softmax(-1).tolist() for logits in (p, q))

    def lengths(node):
        found, left = Counter(), 1.0
        if greedy:
            best = max(range(len(p)), key=lambda token: (p[tokens[node]][token], -token))
            accept = [float(tokens[child] == best) for child in below[node]]
        else:
            accept, _ = mcsd(p[tokens[node]], q[tokens[node]], [tokens[child] for child in below[node]])
        for child, chance in zip(below[node], accept, strict=True):
            for length, more in lengths(child).items():
                found[length + 1] += left * chance * more
            left *= 1 - chance
        found[0] += left
        return found

    probs = Counter()
    for outcome in product(*(lengths(first).items() for first in below[0])):
        chance, longest = 1.0, [length for length, _ in outcome]
        for _, share in outcome:
            chance *= share
        probs[tokens[below[0][longest.index(max(longest))]]] += chance
    return [probs[token] for token in range(6)]


ORACLES = {
    "independent": (IndependentLongest(), lambda t, p, q, g: flagged_probs(t, flag_chances(t, p, q, greedy=g))),
    "subtree": (LongestSubtree(), lambda t, p, q, g: subtree_probs(t, p, q, greedy=g)),
}
