"""Trees that end early: laws summed over every draw of drafter and rule, by an arithmetic of this file's own.

The rules are written down here as lists of numbers, from the papers' words; what runs is the drafter, the walk through
its tree and what the rule hands on.
"""

from collections import Counter, defaultdict
from functools import cache
from itertools import pairwise, permutations, product

import pytest
import torch
from doubles import BigramLM, TableDraft, context_for, paths_of
from laws import law_of_tokens
from scipy import stats

from specdec_core import Sampling, TokenTree, generate
from specdec_core.checks import check_lossless
from specdec_core.drafters import EarlyStop, TargetInit, fork_tree, static_tree, target_init
from specdec_core.models import ModelOutput
from specdec_core.models.decision import DecisionModel
from specdec_core.verifiers import ChildByChild, IndependentLongest, LongestSubtree, MultiCandidate, rounds

TOLERANCE = 1e-6
"""Laws are in float32, and the sums in float64."""
T1, GREEDY = Sampling(1.0), Sampling()


def table(seed, vocab, sharpness=1.5):
    """Logits after each token."""
    return sharpness * torch.randn(vocab, vocab, generator=torch.Generator().manual_seed(seed))


def after(logits):
    """A draft whose law depends on the last token alone, the root's on the root."""

    class Rooted(TableDraft):
        def begin(self, context):
            self.root = context.tokens[-1]
            return super().begin(context)

    draft = Rooted(logits.shape[1], None)
    draft.root = 0
    draft.law = lambda path: logits[path[-1] if path else draft.root].softmax(-1)
    return draft


# the rules as lists of numbers


def draws_of(q, k, how="without_replacement"):
    """Every sequence of k successive draws with its probability; uniform over the others where q has no more."""
    if k == 0:
        return [((), 1.0)]
    if how == "iid":
        found = [(tokens, 1.0) for tokens in product(range(len(q)), repeat=k)]
        return [(tokens, chance_of(q, tokens)) for tokens, _ in found if chance_of(q, tokens) > 0]
    found = []
    for tokens in permutations(range(len(q)), k):
        left, chance = list(q), 1.0
        for number, token in enumerate(tokens):
            total = sum(left)
            chance *= left[token] / total if total > 0 else 1 / (len(q) - number)
            left[token] = 0.0
        if chance > 0:
            found.append((tokens, chance))
    return found


def chance_of(q, tokens):
    chance = 1.0
    for token in tokens:
        chance *= q[token]
    return chance


def normed(law):
    total = sum(law)
    return [value / total for value in law]


def mcsd(p, q, children):
    """Chance of each child to be accepted once those before it were rejected, and what is left behind all of them."""
    wanted, drawn, accept = normed(p), normed(q), []
    for child in children:
        accept.append(min(1.0, wanted[child] / drawn[child]) if drawn[child] > 0 else 0.0)
        if drawn[child] > 0 and accept[-1] < 1 - 1e-9:
            wanted = normed([max(a - b, 0.0) for a, b in zip(wanted, drawn, strict=True)])
        drawn[child] = 0.0
        if sum(drawn) > 0:
            drawn = normed(drawn)
    return accept, wanted


def every_run(run):
    """All outcomes of `run(pick)` with their probabilities; it takes its draws from `pick(chances)`, an index."""
    tapes = [()]
    while tapes:
        tape, played, chance = tapes.pop(), [], 1.0

        def pick(chances, tape=tape, played=played):
            nonlocal chance
            options = [number for number, share in enumerate(chances) if share > 0]
            if len(played) >= len(tape):
                tapes.extend((*played, other) for other in options[1:])
                choice = options[0]
            else:
                choice = tape[len(played)]
            played.append(choice)
            chance *= float(chances[choice])
            return choice

        outcome = run(pick)
        yield outcome, chance


class Played:
    """A drafter and a rule on bigram tables, each draw one of all possible ones."""

    def __init__(self, monkeypatch, target, drafter, rule, sampling=T1):
        self.target, self.drafter, self.rule, self.sampling = target, drafter, rule, sampling
        self.orders, self.pick, self.last_drawn, self.depths = cache(draws_of), None, None, set()
        for module in (target_init, static_tree):
            monkeypatch.setattr(module, "draw_children", self.draw)
        monkeypatch.setattr(ChildByChild, "choose", lambda rule, p, q, drawn, rng: self.choose(p, q, drawn))
        monkeypatch.setattr(rounds, "draw_tokens", lambda law, k, rng: torch.tensor([self.pick(normed(law.tolist()))]))

    def draw(self, probs, k, how, rng):
        ids = []
        for row in probs.tolist():
            orders = self.orders(tuple(row), k, how)
            ids.append(orders[self.pick(normed([chance for _, chance in orders]))][0])
        self.last_drawn = ids = torch.tensor(ids)
        return probs.gather(-1, ids), ids

    def choose(self, p, q, children):
        accept, rest = mcsd(p.tolist(), q.tolist(), children.tolist())
        chances, left = [], 1.0
        for chance in accept:
            chances.append(left * chance)
            left *= 1 - chance
        choice = self.pick([*chances, left])
        return choice if choice < len(chances) else torch.tensor(rest)

    def trees(self, token, law=None):
        """Every tree behind a token with its probability."""

        def run(pick):
            self.pick, context = pick, context_for(token)
            context.next_probs = None if law is None else torch.tensor(law)
            context.greedy = self.sampling.greedy
            return self.drafter.grow(context)

        for tree, chance in every_run(run):
            self.depths.add(int(tree.depths.max()))
            yield tree, chance

    def scored(self, tree, law=None):
        rows = self.target[tree.tokens]
        if law is None:
            return ModelOutput(rows)
        root = torch.tensor(law)
        return ModelOutput(torch.cat((root.log()[None], rows[1:])), None, root)

    def step(self, token, law=None):
        """Probability of the tokens, and the next law if one is left, of a step behind `token`."""
        outcomes = Counter()
        for tree, reached in self.trees(token, law):

            def run(pick, tree=tree):
                self.pick = pick
                verdict = self.rule.judge(tree, self.scored(tree, law), self.sampling, torch.Generator())
                if law is None:
                    assert verdict.next_probs is None
                    return (*verdict.tokens, verdict.next_token), None
                assert verdict.next_token is None
                return verdict.tokens, tuple(verdict.next_probs.tolist())

            for outcome, chance in every_run(run):
                outcomes[outcome] += reached * chance
        assert sum(outcomes.values()) == pytest.approx(1, abs=1e-6)
        return outcomes

    def law_of(self, count):
        """The law of so many tokens behind token 0."""
        virtual = self.drafter.virtual_root
        return law_of_tokens(self.step, 0, tuple(self.target[0].softmax(-1).tolist()) if virtual else None, count)

    def error(self, count):
        """Largest distance from the target's own law of so many tokens."""
        p, found, worst = self.target.double().softmax(-1), self.law_of(count), 0.0
        for tokens in product(range(len(p)), repeat=count):
            chance = 1.0
            for above, token in zip((0, *tokens), tokens, strict=False):
                chance *= float(p[above, token])
            assert chance > 0 or not found[tokens], "a token without probability"
            worst = max(worst, abs(found[tokens] - chance))
        return worst


# stops


class Rule:
    """Goes on where a function of the draft's rows says so."""

    needs_hidden = False

    def __init__(self, says):
        self.says = says

    def goes_on(self, drafted):
        return self.says(drafted)


def likes_token_1(drafted):
    """Content dependent: whether the draft's best token is 1 at any parent."""
    return bool((drafted.logits.argmax(-1) == 1).any())


def unsure(drafted):
    """Content dependent the other way: whether some parent's law is flat."""
    return bool((drafted.logits.softmax(-1).max(-1).values < 0.6).any())


def model_stop(seed=5):
    """A `topk` model of random weights and the beta that divides what it says of two tables' rows."""
    torch.manual_seed(seed)
    model = DecisionModel.of("topk")
    model.layers.linear1.weight.data *= 10
    return model


STOPS = {
    "none": lambda: None,
    "always_on": lambda: Rule(lambda drafted: True),
    "always_off": lambda: Rule(lambda drafted: False),
    "likes_1": lambda: Rule(likes_token_1),
    "unsure": lambda: Rule(unsure),
}


def two_minded(vocab, seed):
    """A draft's table whose rows have best tokens 1 and others, some flat and some sharp."""
    q = table(seed, vocab, 1.0)
    q[0, 1] = q[0].max() + 0.4
    q[1, 0] = q[1].max() + 1.5
    return q


@pytest.mark.parametrize(
    ("vocab", "width", "depth", "count", "stop"),
    [
        *((2, 2, 3, 4, stop) for stop in STOPS),
        *((2, 1, 3, 4, stop) for stop in STOPS),
        *((3, 2, 2, 3, stop) for stop in ("none", "always_off", "likes_1")),
    ],
)
def test_a_fork_from_the_root_has_the_targets_law_however_it_ends(vocab, width, depth, count, stop, monkeypatch):
    """Spec 9.1: the next tokens, summed over all draws, trees and judgements."""
    p, q = table(1, vocab), two_minded(vocab, 2)
    drafter = fork_tree(draft=after(q), width=width, depth=depth, init="draft", decision=STOPS[stop]())
    played = Played(monkeypatch, p, drafter, MultiCandidate())
    assert check_lossless(drafter, played.rule, T1)
    assert played.error(count) < TOLERANCE
    wanted = {"none": {depth}, "always_on": {depth}, "always_off": {1}}
    assert played.depths == wanted[stop] if stop in wanted else len(played.depths) > 1


@pytest.mark.parametrize("kind", ["same", "disjoint", "few", "certain"])
def test_special_laws_too(kind, monkeypatch):
    """Q = p; q without p's tokens; fewer tokens than sequences; a certain p. The stop reads the content."""
    p, q = table(3, 3), two_minded(3, 4)
    if kind == "same":
        q = p = two_minded(3, 4)
    if kind == "disjoint":
        p[:, 0] = q[:, 1] = q[:, 2] = -torch.inf
    if kind == "few":
        q[0, 2] = q[1, 1:] = q[2, :2] = -torch.inf
    if kind == "certain":
        p[:, 1:] = -torch.inf
    drafter = fork_tree(draft=after(q), width=2, depth=2, init="draft", decision=Rule(likes_token_1))
    assert Played(monkeypatch, p, drafter, MultiCandidate()).error(3) < TOLERANCE


class Peeking(Rule):
    """Goes on unless the level just drafted, which it may see since it is kept, holds token 0."""

    def __init__(self):
        self.played = None

    def goes_on(self, drafted):
        return not bool((self.played.last_drawn == 0).any())


def test_a_stop_may_depend_on_the_very_tokens_that_were_drafted_since_they_are_kept(monkeypatch):
    stop = Peeking()
    drafter = fork_tree(draft=after(table(2, 2)), width=1, depth=3, init="draft", decision=stop)
    stop.played = Played(monkeypatch, table(1, 2), drafter, MultiCandidate())
    assert stop.played.error(4) < TOLERANCE
    assert stop.played.depths == {1, 2, 3}


def without_last(tree):
    """The tree above its last level."""
    end = int((tree.depths < tree.depths.max()).sum())
    has_child = torch.bincount(tree.parents[1:end], minlength=end) > 0
    rows = torch.where(has_child, tree.draft_rows[:end], -1)
    return TokenTree(tree.tokens[:end], tree.parents[:end], tree.edge_probs[:end], tree.draft_probs, rows)


def test_dropping_what_was_drafted_for_what_it_says_is_seen(monkeypatch):
    """The control: the level that holds token 0 is thrown away instead of kept."""
    drafter = fork_tree(draft=after(table(2, 2)), width=1, depth=2, init="draft")
    grow = drafter.grow

    def dropping(context):
        tree = grow(context)
        return without_last(tree) if int(tree.tokens[-1]) == 0 else tree

    drafter.grow = dropping
    assert Played(monkeypatch, table(1, 2), drafter, MultiCandidate()).error(3) > 1e-3


def test_rejecting_as_if_draws_were_independent_is_seen(monkeypatch):
    """The control of the rule: SpecInfer's, which leaves q as it is, on draws without replacement (spec 9.4)."""
    drafter = fork_tree(draft=after(table(2, 3)), width=2, depth=2, init="draft", decision=Rule(likes_token_1))
    played, wrong = Played(monkeypatch, table(1, 3), drafter, MultiCandidate()), MultiCandidate(replacement=True)

    def choose(p, q, children):
        found = wrong.rounds(p, q, children)
        chances, left = [], 1.0
        for chance in found.accept.tolist():
            chances.append(left * chance)
            left *= 1 - chance
        choice = played.pick([*chances, left])
        return choice if choice < len(chances) else found.residual

    assert played.error(2) < TOLERANCE
    played.choose = choose
    monkeypatch.setattr(ChildByChild, "choose", lambda rule, p, q, drawn, rng: choose(p, q, drawn))
    assert played.error(2) > 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_rounds_are_those_of_this_file(seed):
    p, q = (table(seed + offset, 5)[0].double().softmax(-1) for offset in (0, 50))
    q[seed] = 0
    q /= q.sum()
    for children in permutations(range(5), 3):
        accept, rest = mcsd(p.tolist(), q.tolist(), children)
        found = MultiCandidate().rounds(p, q, torch.tensor(children))
        reached = 1.0
        for number, chance in enumerate(accept):
            if reached > 1e-9:
                assert float(found.accept[number]) == pytest.approx(chance, abs=1e-9)
            reached *= 1 - chance
        assert reached < 1e-9 or found.residual.tolist() == pytest.approx(rest, abs=1e-9)


@pytest.mark.parametrize("stop", ["always_off", "likes_1", "unsure"])
@pytest.mark.parametrize(("vocab", "depth", "count"), [(2, 3, 4), (3, 2, 2)])
def test_below_one_first_token_the_law_is_the_targets_however_the_chain_ends(vocab, depth, count, stop, monkeypatch):
    """Spec 9.2 for a stop that reads the content: what a step leaves is the next step's first level."""
    drafter = fork_tree(draft=after(two_minded(vocab, 2)), width=1, depth=depth, decision=STOPS[stop]())
    played = Played(monkeypatch, table(1, vocab), drafter, LongestSubtree())
    assert check_lossless(drafter, played.rule, T1)
    assert played.error(count) < TOLERANCE
    assert played.depths == {2} if stop == "always_off" else len(played.depths) > 1


def test_the_papers_rule_is_not_exact_below_one_first_token_of_several_siblings(monkeypatch):
    """Spec 3.4 (b), the control of the test above: siblings that were drawn without replacement."""
    drafter = TargetInit(draft=after(two_minded(3, 2)), widths=(1, 2), stop=None)
    p, found = table(1, 3).softmax(-1), defaultdict(float)
    played = Played(monkeypatch, table(1, 3), drafter, IndependentLongest())
    law = tuple(p[0].tolist())
    for tree, chance in played.trees(0, law):
        flagged = [min(1.0, float(p[tree.tokens[1], tree.tokens[n]] / tree.edge_probs[n])) for n in (2, 3)]
        a, b = (int(tree.tokens[n]) for n in (2, 3))
        found[int(tree.tokens[1]), a] += chance * flagged[0]
        found[int(tree.tokens[1]), b] += chance * (1 - flagged[0]) * flagged[1]
        for token in range(3):
            found[int(tree.tokens[1]), token] += (
                chance * (1 - flagged[0]) * (1 - flagged[1]) * float(p[tree.tokens[1], token])
            )
    exact = {(a, b): float(p[0, a] * p[a, b]) for a in range(3) for b in range(3)}
    assert sum(found.values()) == pytest.approx(1, abs=1e-6)
    assert max(abs(found[pair] - exact[pair]) for pair in exact) > 1e-3


# samples of the engine


def pooled_pvalue(tokens, p):
    """Chi-square of all transitions against the target's rows."""
    counts, statistic, freedom = Counter(pairwise(tokens)), 0.0, 0
    for above in range(len(p)):
        seen = [counts[above, token] for token in range(len(p))]
        if sum(seen) < 40:
            continue
        for token, number in enumerate(seen):
            wanted = sum(seen) * float(p[above, token])
            statistic += (number - wanted) ** 2 / wanted
        freedom += len(p) - 1
    assert freedom > len(p)
    return stats.chi2.sf(statistic, freedom)


@pytest.mark.parametrize("stop", ["none", "always_off", "likes_1", "model"])
def test_samples_of_the_engine_have_the_targets_law(stop):
    p, q, depths = table(1, 4, 0.8), table(2, 4, 0.8), set()
    decision, beta = (STOPS[stop](), 0.4) if stop != "model" else (model_stop(), 0.0)
    if stop == "model":
        scores = decision.scores(ModelOutput(q)).sort().values.tolist()
        beta = (scores[1] + scores[2]) / 2
    drafter = fork_tree(draft=BigramLM(q), width=2, depth=3, init="draft", decision=decision, beta=beta)
    found = generate(
        BigramLM(p), drafter, MultiCandidate(), [0], max_new_tokens=700, sampling=T1,
        rng=torch.Generator().manual_seed(7), watch=lambda tree, *rest: depths.add(int(tree.depths.max())),
    )  # fmt: skip
    assert pooled_pvalue([0, *found.tokens], p.softmax(-1)) > 1e-3
    assert len(depths) > 1 or stop in ("none", "always_off")


def test_samples_tell_a_rule_that_is_wrong_for_the_draws():
    p, q = table(1, 4, 0.8), table(2, 4, 2.0)
    drafter = fork_tree(draft=BigramLM(q), width=3, depth=1, init="draft")
    found = generate(
        BigramLM(p), drafter, MultiCandidate(replacement=True), [0], max_new_tokens=700, sampling=T1, allow_lossy=True,
        rng=torch.Generator().manual_seed(7),
    )  # fmt: skip
    assert pooled_pvalue([0, *found.tokens], p.softmax(-1)) < 1e-4


# the law of the first token, given the tree


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
    tokens, laws = torch.tensor(tokens), q.softmax(-1)
    edges = laws[tokens[parents], tokens]
    edges[0] = 1
    inner = torch.bincount(parents[1:], minlength=len(parents)) > 0
    inner[0] = False
    tree = TokenTree(tokens, parents, edges, laws[tokens], torch.where(inner, torch.arange(len(parents)), -1))
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


def flagged_law(tree, accept):
    """Spec 3.4 word for word: all patterns of flags; the path of most leading flagged nodes, the first such."""
    paths, law = in_path_order(tree), Counter()
    drafted = [node for node in range(1, tree.num_nodes) if int(tree.parents[node])]
    for pattern in product((True, False), repeat=len(drafted)):
        flags, chance = dict(zip(drafted, pattern, strict=True)), 1.0
        for node, flag in flags.items():
            chance *= accept[node] if flag else 1 - accept[node]
        if not chance:
            continue
        lengths = [next((n for n, node in enumerate(path[1:]) if not flags[node]), len(path) - 1) for path in paths]
        law[int(tree.tokens[paths[lengths.index(max(lengths))][0]])] += chance
    return [law[token] for token in range(6)]


def flag_chances(tree, p, q, *, greedy=False):
    """u q < p with the law that q was before any sibling, nothing where q has none; greedy: the best token."""
    tokens, accept = tree.tokens.tolist(), {}
    for node, parent in enumerate(tree.parents.tolist()):
        wanted, drawn = (law.double().softmax(-1)[tokens[parent], tokens[node]].item() for law in (p, q))
        if greedy:
            wanted = float(int(p[tokens[parent]].argmax()) == tokens[node])
        accept[node] = min(1.0, wanted / drawn) if drawn > 0 else 0.0
    return accept


def subtree_law(tree, p, q, *, greedy=False):
    """Walks below every first token on their own, child by child; all combinations of their lengths."""
    below, tokens = children_of(tree), tree.tokens.tolist()
    p, q = (law.double().softmax(-1).tolist() for law in (p, q))

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

    law = Counter()
    for outcome in product(*(lengths(first).items() for first in below[0])):
        chance, longest = 1.0, [length for length, _ in outcome]
        for _, share in outcome:
            chance *= share
        law[tokens[below[0][longest.index(max(longest))]]] += chance
    return [law[token] for token in range(6)]


ORACLES = {
    "independent": (IndependentLongest(), lambda t, p, q, g: flagged_law(t, flag_chances(t, p, q, greedy=g))),
    "subtree": (LongestSubtree(), lambda t, p, q, g: subtree_law(t, p, q, greedy=g)),
}


@pytest.mark.parametrize("sampling", [T1, GREEDY], ids=["t1", "greedy"])
@pytest.mark.parametrize("rule", ORACLES)
@pytest.mark.parametrize("name", TREES)
def test_the_law_of_the_first_token_is_that_of_all_the_rules_draws(name, rule, sampling):
    law_of, firsts, spread = ORACLES[rule][0].first_token_law, set(), 0
    for seed in range(4):
        tree, scored, p, q = fixed_tree(name, seed)
        found = law_of(tree, scored, sampling)
        assert (found.dtype, found.shape, found.device.type) == (torch.float64, (6,), "cpu")
        assert found.tolist() == pytest.approx(ORACLES[rule][1](tree, p, q, sampling.greedy), abs=2e-6)
        assert float(found.sum()) == pytest.approx(1, abs=1e-9)
        firsts.add(int(found.argmax()))
        spread += int((found > 1e-3).sum())
        if sampling.greedy:
            judged = ORACLES[rule][0].judge(tree, scored, sampling, torch.Generator())
            assert float(found[judged.tokens[0]]) == 1
    assert spread > 4 or sampling.greedy or name == "one"


@pytest.mark.parametrize("rule", ORACLES)
def test_ties_go_to_the_first_path(rule):
    """Certain acceptance everywhere, certain rejection everywhere, and the same chance in all chains."""
    tree, scored, p, _ = fixed_tree("fork", 3, holes=False)
    law = ORACLES[rule][0].first_token_law
    same = TokenTree(tree.tokens, tree.parents, tree.edge_probs, p.softmax(-1)[tree.tokens], tree.draft_rows)
    same.edge_probs[1:] = p.softmax(-1)[tree.tokens[tree.parents[1:]], tree.tokens[1:]]
    assert float(law(same, scored, T1)[tree.tokens[1]]) == pytest.approx(1, abs=1e-6)
    never = scored.logits.clone()
    for node, parent in enumerate(tree.parents.tolist()):
        if parent > 0:
            never[parent, tree.tokens[node]] = -torch.inf
    found = law(tree, ModelOutput(never, None, scored.root_probs), T1)
    assert float(found[tree.tokens[1]]) == 1
    chance = 0.3  # of each of three chains of one node: the first wins unless it is rejected and a later one is not
    tokens, parents = torch.tensor([0, 0, 1, 2, 3, 3, 3]), torch.tensor([-1, 0, 0, 0, 1, 2, 3])
    q3, p3 = torch.tensor([0.0, 0, 0, 1]), torch.tensor([0.7, 0, 0, chance])
    rows = torch.tensor([-1, 0, 0, 0, -1, -1, -1])
    chains = TokenTree(tokens, parents, torch.tensor([1.0] * 7), q3[None], rows)
    scored = ModelOutput(p3.log().expand(7, 4), None, torch.full((4,), 0.25))
    found = law(chains, scored, T1).tolist()
    miss = 1 - chance
    assert found == pytest.approx([chance + miss**3, miss * chance, miss**2 * chance, 0], abs=1e-6)


@pytest.mark.parametrize("rule", ORACLES)
@pytest.mark.parametrize("name", ["fork", "ended_early", "unequal"])
def test_first_tokens_of_many_judgements_have_that_law(rule, name):
    judge, rng, number = ORACLES[rule][0], torch.Generator().manual_seed(11), 500
    tree, scored, _, _ = fixed_tree(name, {"fork": 0, "ended_early": 1, "unequal": 2}[name])
    law = judge.first_token_law(tree, scored, T1)
    counts = Counter(judge.judge(tree, scored, T1, rng).tokens[0] for _ in range(number))
    assert all(law[token] > 0 for token in counts)
    tokens = (law * number >= 3).nonzero().flatten().tolist()
    seen, wanted = [counts[token] for token in tokens], [float(law[token]) * number for token in tokens]
    seen.append(number - sum(seen))
    wanted.append(number - sum(wanted))
    if wanted[-1] < 1e-6:
        seen.pop(), wanted.pop()
    assert len(seen) > 1
    assert stats.chisquare(seen, wanted, sum_check=False).pvalue > 1e-3


@pytest.mark.parametrize("rule", ORACLES)
@pytest.mark.parametrize("width", [2, 3])
def test_first_tokens_of_the_engine_have_the_laws_of_their_trees(rule, width):
    """Sum of (first token - its tree's law), step by step: every one has mean 0 whatever came before."""
    p, q, total, spread = table(6, 5, 1.2), table(7, 5, 1.2), torch.zeros(5).double(), torch.zeros(5).double()
    seen = []

    def watch(tree, scored, verdict):
        law = ORACLES[rule][0].first_token_law(tree, scored, T1)
        total.sub_(law)
        total[verdict.tokens[0]] += 1
        spread.add_(law * (1 - law))
        seen.append((int(tree.depths.max()), float(law.max())))

    drafter = fork_tree(draft=BigramLM(q), width=width, depth=3, decision=Rule(likes_token_1))
    generate(
        BigramLM(p), drafter, ORACLES[rule][0], [0], max_new_tokens=300, sampling=T1, allow_lossy=True, watch=watch,
        rng=torch.Generator().manual_seed(width),
    )  # fmt: skip
    assert {depth for depth, _ in seen} == {2, 3, 4}
    assert sum(largest < 0.99 for _, largest in seen) > 50
    assert float((total / spread.sqrt()).abs().max()) < 3.9


def all_chains(q, firsts, depth, goes_on):
    """All chains below first tokens with their probability; a level may be the last, for what stands above it."""
    grown, done = [(tuple((first,) for first in firsts), 1.0)], []
    while grown:
        chains, chance = grown.pop()
        drafted = len(chains[0]) - 1
        if drafted == depth or (drafted and not goes_on([q[chain[-2]] for chain in chains])):
            done.append((chains, chance))
            continue
        for tokens in product(range(len(q)), repeat=len(firsts)):
            longer = tuple((*chain, token) for chain, token in zip(chains, tokens, strict=True))
            more = chance * chance_of_steps(q, longer)
            grown += [(longer, more)] if more else []
    return done


def chance_of_steps(q, chains):
    """Of the last tokens of all chains."""
    chance = 1.0
    for *_, above, token in chains:
        chance *= q[above][token]
    return chance


def lengths_of(chain, accepted):
    """How probable it is that exactly 0, 1, ... tokens below the first are accepted."""
    found, left = [], 1.0
    for above, token in pairwise(chain):
        found.append(left * (1 - accepted(above, token)))
        left *= accepted(above, token)
    return [*found, left]


def chain_winner_law(p, q, width, depth, goes_on, rule):
    """The first token's law summed without any of the code: first tokens, chains, their lengths, the winner."""
    p, q = (law.double().softmax(-1).tolist() for law in (p, q))
    law = Counter()

    def accepted(above, token):
        alone = min(1.0, p[above][token] / q[above][token])
        return alone if rule == "independent" else mcsd(p[above], q[above], [token])[0][0]

    for firsts, chance in draws_of(p[0], width):
        for chains, reached in all_chains(q, firsts, depth, goes_on):
            lengths = [lengths_of(chain, accepted) for chain in chains]
            for outcome in product(*(range(len(found)) for found in lengths)):
                share = chance * reached
                for found, length in zip(lengths, outcome, strict=True):
                    share *= found[length]
                law[chains[outcome.index(max(outcome))][0]] += share
    return [law[token] for token in range(len(p))]


def likes_1_of_lists(rows):
    return any(row.index(max(row)) == 1 for row in rows)


@pytest.mark.parametrize("rule", ORACLES)
@pytest.mark.parametrize(("width", "depth", "content"), [(2, 2, True), (2, 1, False), (3, 1, False)])
def test_the_mean_over_all_trees_is_the_law_of_an_enumeration_of_its_own(rule, width, depth, content, monkeypatch):
    p, q = table(1, 3), two_minded(3, 2)
    drafter = fork_tree(draft=after(q), width=width, depth=depth, decision=Rule(likes_token_1) if content else None)
    played = Played(monkeypatch, p, drafter, ORACLES[rule][0])
    law, mean = tuple(p[0].softmax(-1).tolist()), torch.zeros(3).double()
    for tree, chance in played.trees(0, law):
        mean += chance * ORACLES[rule][0].first_token_law(tree, played.scored(tree, law), T1)
    wanted = chain_winner_law(p, q, width, depth, likes_1_of_lists if content else lambda rows: True, rule)
    assert mean.tolist() == pytest.approx(wanted, abs=2e-6)
    assert played.depths == ({2, 3} if content else {1 + depth})
    assert max(abs(a - b) for a, b in zip(wanted, law, strict=True)) > 1e-3, "several first tokens are lossy"


@pytest.mark.parametrize("rule", ORACLES)
def test_the_law_differs_from_p_where_subtrees_are_accepted_unequally(rule, monkeypatch):
    """Behind token 0 all is accepted, behind the others nothing: 0 wins wherever it is drawn."""
    p = torch.zeros(3, 3)
    p[1:, 0] = -torch.inf
    q = p.clone()
    q[1:] = torch.tensor([0.0, -torch.inf, -torch.inf])
    drafter = fork_tree(draft=after(q), width=2, depth=1)
    played = Played(monkeypatch, p, drafter, ORACLES[rule][0])
    mean = torch.zeros(3).double()
    for tree, chance in played.trees(0, (1 / 3, 1 / 3, 1 / 3)):
        mean += chance * ORACLES[rule][0].first_token_law(tree, played.scored(tree, (1 / 3, 1 / 3, 1 / 3)), T1)
    assert mean.tolist() == pytest.approx([2 / 3, 1 / 6, 1 / 6], abs=1e-6)


@pytest.mark.parametrize("rule", ORACLES)
def test_with_q_equal_to_p_the_first_path_always_wins_and_the_law_is_p(rule, monkeypatch):
    """Spec 9.3: all is accepted, and the first draw from a law has that law."""
    p = two_minded(3, 5)
    p[1, 2] = p[2, 0] = -torch.inf
    drafter = fork_tree(draft=after(p), width=2, depth=2, decision=Rule(likes_token_1))
    played = Played(monkeypatch, p, drafter, ORACLES[rule][0])
    law, mean = tuple(p[0].softmax(-1).tolist()), torch.zeros(3).double()
    for tree, chance in played.trees(0, law):
        found = ORACLES[rule][0].first_token_law(tree, played.scored(tree, law), T1)
        assert float(found[tree.tokens[1]]) == pytest.approx(1, abs=1e-5)
        mean += chance * found
    assert mean.tolist() == pytest.approx(law, abs=1e-5)
    assert len(played.depths) == 2


@pytest.mark.parametrize("rule", ORACLES)
def test_at_temperature_0_the_law_is_that_of_the_one_tree(rule):
    """The tree is one and so is the winner: the engine's first token, step by step."""
    p, q, firsts = table(8, 7, 2.0), table(9, 7, 2.0), []
    for row in (0, 3, 5):
        q[row] = p[row]
    best = p.softmax(-1).argmax(-1)

    def watch(tree, scored, verdict):
        law = ORACLES[rule][0].first_token_law(tree, scored, GREEDY)
        assert law.max() == law.sum() == law[verdict.tokens[0]] == 1
        firsts.append(verdict.tokens[0] == int(best[tree.tokens[0]]))
        for node, path in enumerate(paths_of(tree)[1:], 1):
            if len(path) > 1:
                assert path[-1] == int(q[path[-2]].argmax())
            assert node

    for start in range(7):
        drafter = fork_tree(draft=BigramLM(q), width=3, depth=3, draws="topk", decision=Rule(likes_token_1))
        generate(BigramLM(p), drafter, ORACLES[rule][0], [start], max_new_tokens=8, allow_lossy=True, watch=watch)
    assert set(firsts) == {True, False}, "the second best may win"


def test_early_stop_by_a_model_is_the_same_as_by_its_scores(monkeypatch):
    """Every tree of a fork under a `topk` model ends where all scores of a level's parents are at most beta."""
    q, model = two_minded(3, 2), model_stop()
    scores = dict(enumerate(model.scores(ModelOutput(q.softmax(-1).log())).tolist()))
    beta = sorted(scores.values())[1]
    drafter = fork_tree(draft=after(q), width=2, depth=3, init="draft", decision=model, beta=beta)
    assert isinstance(drafter.stop, EarlyStop)
    played = Played(monkeypatch, table(1, 3), drafter, MultiCandidate())
    ends, number = Counter(), 0
    for root in range(3):
        for tree, _ in played.trees(root):
            number += 1
            levels = int(tree.depths.max())
            above = [tree.tokens[tree.depths == depth].tolist() for depth in range(levels)]
            goes_on = [any(scores[token] > beta for token in level) for level in above]
            assert all(goes_on[: levels - 1])
            assert levels == 3 or not goes_on[levels - 1]
            ends[levels] += 1
    assert {1, 2, 3} >= set(ends)
    assert len(ends) > 1
    assert number > 20
