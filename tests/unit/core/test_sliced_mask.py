"""Masks that are made once and sliced, against masks drawn by walking the parents, and in the engine against none."""

import pytest
import torch
from doubles import random_llama

from bench.embedded import TINY
from specdec_core import CausalLM, Sampling, generate, load_pair, shapes, sliced_mask
from specdec_core.drafters import StaticTree, TargetInit, fork_tree
from specdec_core.layout import tree_layout
from specdec_core.models import LayerSkip, ModelSpec
from specdec_core.models.eagle import EagleHead
from specdec_core.sliced_mask import ALIGNMENT, LEAD, ROOM, SlicedMask
from specdec_core.verifiers import IndependentLongest, MultiCandidate, TargetSample

CPU = torch.device("cpu")
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
T07 = Sampling(0.7)


def level_major(seed):
    """Parents of a random tree, level by level; siblings need not stand together."""
    rng = torch.Generator().manual_seed(seed)
    parents, above = [-1], [0]
    for _ in range(int(torch.randint(1, 6, (), generator=rng))):
        here = list(range(len(parents), len(parents) + int(torch.randint(1, 7, (), generator=rng))))
        parents += [above[int(torch.randint(len(above), (), generator=rng))] for _ in here]
        above = here
    return tuple(parents)


FAMILIES = {
    "fork": shapes.k_sequences(3, 4).parents,
    "wide_fork": shapes.branching([16, 1, 1, 1, 1, 1]).parents,
    "expanding": shapes.branching([2, 3, 2]).parents,
    "eagle": shapes.eagle25().parents,
    "chain": shapes.chain(5).parents,
    "star": shapes.star(7).parents,
    "one_node": (-1, 0),
    **{f"random_{seed}": level_major(seed) for seed in range(6)},
}


def walked(parents, node):
    """A node and its ancestors, deepest first."""
    line = [node]
    while parents[line[-1]] >= 0:
        line.append(parents[line[-1]])
    return line


def cuts(parents):
    """First node of every level, and one behind the last."""
    depths = [len(walked(parents, node)) for node in range(len(parents))]
    assert depths == sorted(depths)
    return [depths.index(depth) for depth in range(1, depths[-1] + 1)] + [len(depths)]


def drawn(parents, first, count, prefix):
    """The mask and the positions, entry by entry: cached text, root at slot `prefix - first`, nodes behind it."""
    root = prefix - first
    mask, positions = torch.full((count, prefix + count), -torch.inf), []
    for row, node in enumerate(range(first, first + count)):
        line = walked(parents, node) if node >= 0 else []
        text = root if node >= 0 else root + node + 1
        mask[row, :text] = 0
        for seen in line:
            mask[row, root + seen] = 0
        positions.append(root + len(line) - 1 if node >= 0 else root + node)
    return mask, positions


def check(sliced, parents, first, count, prefix, *, dtype=torch.float32, max_positions=None):
    layout = sliced.layout(first, count, prefix=prefix, device=CPU, dtype=dtype, max_positions=max_positions)
    mask, positions = drawn(parents, first, count, prefix)
    if max_positions is not None:
        positions = [min(position, max_positions - 1) for position in positions]
    assert layout.positions.tolist() == [positions]
    assert (layout.mask is None) == (count == 1 and bool((mask == 0).all()))
    if layout.mask is not None:
        assert layout.mask.dtype == dtype
        assert torch.equal(layout.mask[0, 0], mask.to(dtype))
        assert layout.mask.storage_offset() % ALIGNMENT == layout.mask.stride(-2) % ALIGNMENT == 0
        assert layout.mask.stride(-1) == 1
    return layout


def cut_layouts(parents):
    """First node and count of everything that is ever read: levels, trees cut behind a level, a token of the text."""
    ends = cuts(parents)
    for depth, end in enumerate(ends[1:]):
        yield ends[depth], end - ends[depth]
        yield from ((first, end - first) for first in (-LEAD, 0, 1))
    yield from ((-LEAD, 1), (-LEAD, 2), (0, 1))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_cut_equals_a_mask_made_from_scratch(name):
    parents = FAMILIES[name]
    sliced = SlicedMask(parents)
    for end in cuts(parents)[1:]:
        lines = [walked(parents, node) for node in range(end)]
        seen = [[ancestor in line for ancestor in range(end)] for line in lines]
        assert sliced.ancestors(end, CPU).tolist() == seen
        assert sliced.depths(end, CPU).tolist() == [len(line) - 1 for line in lines]
    for first, count in cut_layouts(parents):
        for prefix in (len(parents) + extra for extra in (LEAD, 5, 40)):
            check(sliced, parents, first, count, prefix)


@pytest.mark.parametrize("name", FAMILIES)
def test_layouts_equal_those_of_a_tree_that_is_laid_out_anew(name):
    """The lead token is a root above the root."""
    parents = FAMILIES[name]
    sliced = SlicedMask(parents)
    longer = [-1, *(parent + 1 for parent in parents)]
    visible = torch.tensor(
        [[seen in walked(longer, node) for seen in range(len(longer))] for node in range(len(longer))]
    )
    for first, count in cut_layouts(parents):
        rows = visible[first + 1 : first + 1 + count, : first + 1 + count]
        prefix = 50 + first
        anew = tree_layout(rows, rows.sum(-1) - 1, prefix=prefix - first - 1, max_positions=52)
        ours = sliced.layout(first, count, prefix=prefix, device=CPU, dtype=torch.float32, max_positions=52)
        assert torch.equal(ours.positions, anew.positions)
        if ours.mask is None:
            assert anew.mask is None or not anew.mask.any()
        else:
            assert torch.equal(ours.mask, anew.mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_masks_are_made_anew_where_the_columns_run_out_and_not_before(dtype):
    """Every residue of the root's place, up over the room twice and back, in any dtype."""
    parents = FAMILIES["expanding"]
    sliced, storages = SlicedMask(parents), {}
    around = [*range(16, 25), *range(ROOM - 9, ROOM + 18), *range(2 * ROOM + 10, 2 * ROOM + 30), 4 * ROOM + 41, 17]
    for root in around:
        for first, count in ((0, len(parents)), (1, len(parents) - 1), (-LEAD, LEAD + 3), (3, 6)):
            layout = check(sliced, parents, first, count, root + first, dtype=dtype)
            room = storages.setdefault(root % ALIGNMENT, [])
            storage = layout.mask.untyped_storage().data_ptr()
            if storage not in (found for found, _ in room):
                room.append((storage, layout))
    assert len(storages) == ALIGNMENT
    assert {len(room) for room in storages.values()} == {3, 4}, "one for each multiple of the room that was reached"


def test_a_cold_mask_far_behind_its_room():
    for root in (3 * ROOM, 3 * ROOM + 5):
        check(SlicedMask(FAMILIES["fork"]), FAMILIES["fork"], 0, len(FAMILIES["fork"]), root)


@pytest.mark.parametrize("bound", [1, 12, 20, 22, 1000])
def test_positions_stop_at_the_models_last(bound):
    for first, count in cut_layouts(FAMILIES["expanding"]):
        check(SlicedMask(FAMILIES["expanding"]), FAMILIES["expanding"], first, count, 20 + first, max_positions=bound)


def test_dtypes_do_not_share_masks_and_views_share_their_storage():
    parents = FAMILIES["fork"]
    sliced = SlicedMask(parents)
    one, other, double = (check(sliced, parents, 1, count, 33, dtype=dtype).mask for count, dtype in (
        (3, torch.float32), (9, torch.float32), (9, torch.float64),
    ))  # fmt: skip
    assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
    assert one.untyped_storage().data_ptr() != double.untyped_storage().data_ptr()
    assert (
        sliced.ancestors(4, CPU).untyped_storage().data_ptr() == sliced.ancestors(9, CPU).untyped_storage().data_ptr()
    )
    assert sliced.depths(4, CPU).untyped_storage().data_ptr() == sliced.depths(9, CPU).untyped_storage().data_ptr()


@pytest.mark.parametrize("first", [-LEAD - 1, -LEAD - 7])
def test_more_text_before_the_root_is_refused(first):
    with pytest.raises(ValueError, match=f"begins at node {-LEAD} or behind it, not at {first}"):
        SlicedMask(FAMILIES["fork"]).layout(first, 9, prefix=40, device=CPU, dtype=torch.float32)


class Scripted:
    """Says yes and no in an order that fits no depth."""

    needs_hidden = False
    answers = (True, False, True, True, True, False, False)

    def __init__(self):
        self.asked = -1

    def goes_on(self, drafted):
        self.asked += 1
        return self.answers[self.asked % len(self.answers)]


def tiny_pair():
    pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu")
    return pair.target, pair.draft


def eagle_pair():
    pair = load_pair(str(TINY / "target"), ModelSpec(id=str(TINY / "eagle"), kind="eagle"), device="cpu")
    return pair.target, pair.draft


def skipping_pair():
    target = random_llama(0, layers=4, vocab=40)
    return target, LayerSkip(target, [2])


PAIRS = {"causal_lm": tiny_pair, "eagle": eagle_pair, "layer_skip": skipping_pair}
DRAFTERS = {
    "fork_target": lambda draft, draws: fork_tree(draft=draft, width=3, depth=3, draws=draws, decision=Scripted()),
    "fork_draft": lambda draft, draws: fork_tree(
        draft=draft, width=3, depth=4, init="draft", draws=draws, decision=Scripted()
    ),
    "fork_always": lambda draft, draws: fork_tree(draft=draft, width=4, depth=2, draws=draws),
    "expanding_target": lambda draft, draws: TargetInit(draft=draft, widths=(2, 3, 1), draws=draws, stop=Scripted()),
    "expanding": lambda draft, draws: StaticTree(draft=draft, shape=shapes.branching([3, 2, 1]), draws=draws),
    "uneven": lambda draft, draws: StaticTree(draft=draft, shape=shapes.eagle25(), draws=draws, stop=Scripted()),
    "chain": lambda draft, draws: StaticTree(draft=draft, shape=shapes.chain(4), draws=draws, stop=Scripted()),
}


def rule_for(drafter, draws):
    if drafter.virtual_root:
        return IndependentLongest()
    return MultiCandidate() if draws != "topk" else TargetSample()


@pytest.fixture
def received(monkeypatch):
    """Masks that each kind of forward was given, kept alive; and how often one was built from a tree or a text."""
    masks, built = [], []
    for kind in (CausalLM, EagleHead):
        run = kind._run

        def spied(self, *args, run=run, **options):
            layout = next((value for value in args if hasattr(value, "positions")), None)
            if layout is not None and layout.mask is not None:
                masks.append((self, layout.mask))
            return run(self, *args, **options)

        monkeypatch.setattr(kind, "_run", spied)
    for place in ("engine", "drafters.cached_draft", "drafters.causal_draft", "layout"):
        name = f"specdec_core.{place}.tree_layout"

        def counted(*args, name=name, **options):
            built.append(name)
            return tree_layout(*args, **options)

        monkeypatch.setattr(name, counted)
    return masks, built


def storages(masks):
    return {mask.untyped_storage().data_ptr() for _, mask in masks}


def made(*sliced):
    return {mask.untyped_storage().data_ptr() for one in sliced for mask, _ in one._made.values()}


def decoded(target, drafter, prompt, sampling, new=24):
    """Depths of the trees of a run, and how many have fewer first tokens than places (their mask is no first part)."""
    depths, smaller = set(), 0

    def watch(tree, scored, verdict):
        nonlocal smaller
        depths.add(int(tree.depths.max()))
        smaller += tree.sliced is None
        assert tree.sliced is not None or len(tree.children(0)) < len(drafter.shape.levels[1])

    draws = "topk" if sampling.greedy else "without_replacement"
    generate(
        target, drafter, rule_for(drafter, draws), prompt, max_new_tokens=new, sampling=sampling, allow_lossy=True,
        watch=watch,
    )  # fmt: skip
    return depths, smaller


@pytest.mark.parametrize("sampling", [T07, Sampling()], ids=["t07", "greedy"])
@pytest.mark.parametrize("name", DRAFTERS)
def test_while_decoding_no_mask_is_made_but_views(name, sampling, received):
    """Of one for each residue of the root's place, all made before the first step."""
    masks, built = received
    target, draft = tiny_pair()
    drafter = DRAFTERS[name](draft, "topk" if sampling.greedy else "without_replacement")
    both = drafter.sliced, drafter.sliced_for_draft
    decoded(target, drafter, PROMPT, sampling, new=1)
    masks.clear()
    built.clear()
    warm = made(*both)
    assert len(warm) == 2 * ALIGNMENT
    depths, smaller = decoded(target, drafter, PROMPT, sampling)
    assert {model for model, _ in masks} >= {target}
    assert name == "chain" or {model for model, _ in masks} == {target, draft}, "a chain's draft reads single tokens"
    others = [mask for _, mask in masks if mask.untyped_storage().data_ptr() not in warm]
    assert len(others) == smaller == len(built)
    assert smaller < len(masks) / 8
    assert made(*both) == warm
    assert len(depths) > 1 or name in ("fork_always", "expanding")


def test_masks_are_made_before_the_first_step_and_kept_for_other_answers(received):
    masks, built = received
    target, draft = tiny_pair()
    drafter = DRAFTERS["fork_draft"](draft, "topk")
    assert made(drafter.sliced, drafter.sliced_for_draft) == set()
    decoded(target, drafter, PROMPT, Sampling(), new=40)
    first = made(drafter.sliced, drafter.sliced_for_draft)
    assert len(first) == 2 * ALIGNMENT
    assert storages(masks) <= first
    decoded(target, drafter, PROMPT, Sampling(), new=40)
    assert made(drafter.sliced, drafter.sliced_for_draft) == first >= storages(masks)
    assert not built


def test_the_spies_see_masks_that_are_built(received):
    masks, built = received
    target, draft = tiny_pair()
    drafter = as_before(DRAFTERS["fork_target"](draft, "topk"))
    generate(target, drafter, IndependentLongest(), PROMPT, max_new_tokens=12, allow_lossy=True)
    assert {"specdec_core.engine.tree_layout", "specdec_core.drafters.causal_draft.tree_layout"} <= set(built)
    assert len(storages(masks)) == len(masks) > 5


def test_a_head_reads_its_trees_under_views(received):
    """Committed tokens are read again with the target's features, however many: that mask alone is built."""
    masks, built = received
    target, head = eagle_pair()
    drafter = DRAFTERS["fork_target"](head, "topk")
    found = generate(target, drafter, IndependentLongest(), PROMPT, max_new_tokens=30, allow_lossy=True)
    views = made(drafter.sliced, drafter.sliced_for_draft)
    assert all(mask.untyped_storage().data_ptr() in views for model, mask in masks if model is target)
    others = [mask for _, mask in masks if mask.untyped_storage().data_ptr() not in views]
    assert len(others) <= len(found.steps) + 1
    assert set(built) == {"specdec_core.layout.tree_layout"}, "by causal_layout"


def as_before(drafter):
    """The drafter without masks that were made before."""
    drafter.sliced = drafter.sliced_for_draft = None
    return drafter


def run(pair, name, order, sampling, *, sliced):
    """All that a decoding says."""
    target, draft = PAIRS[pair]()
    draws = "topk" if sampling.greedy else "without_replacement"
    drafter = DRAFTERS[name](draft, draws)
    if not sliced:
        as_before(drafter)
    trees, slots = [], []

    def watch(tree, scored, verdict):
        assert (tree.sliced is not None) == sliced
        trees.append((tree, scored, verdict))
        slots.append(drafter._slots)

    found = generate(
        target, drafter, rule_for(drafter, draws), PROMPT, max_new_tokens=26, sampling=sampling, allow_lossy=True,
        node_order=order, watch=watch,
    )  # fmt: skip
    return found, trees, slots, target


CELLS = [
    ("causal_lm", "fork_target", "creation"),
    ("causal_lm", "fork_target", "dfs"),
    ("causal_lm", "fork_target", "heavy_path"),
    ("causal_lm", "fork_draft", "creation"),
    ("causal_lm", "fork_draft", "heavy_path"),
    ("causal_lm", "expanding_target", "creation"),
    ("causal_lm", "expanding", "dfs"),
    ("causal_lm", "uneven", "creation"),
    ("causal_lm", "chain", "creation"),
    ("eagle", "fork_target", "creation"),
    ("eagle", "fork_draft", "dfs"),
    ("eagle", "uneven", "creation"),
    ("layer_skip", "fork_draft", "creation"),
    ("layer_skip", "fork_draft", "dfs"),
    ("layer_skip", "uneven", "heavy_path"),
]


@pytest.mark.parametrize("sampling", [T07, Sampling()], ids=["t07", "greedy"])
@pytest.mark.parametrize(("pair", "name", "order"), CELLS)
def test_decoding_is_the_same_as_with_masks_built_anew(pair, name, order, sampling, monkeypatch):
    monkeypatch.setattr(sliced_mask, "ROOM", 16)  # so that masks are made anew on the way
    (ours, trees, slots, target), (theirs, others, their_slots, plain) = (
        run(pair, name, order, sampling, sliced=sliced) for sliced in (True, False)
    )
    assert (ours.tokens, ours.finish) == (theirs.tokens, theirs.finish)
    facts = [
        [
            (s.num_drafted, s.depth, s.draft_forwards, s.draft_tokens, s.acceptance_length, s.decision_calls)
            for s in steps
        ]
        for steps in (ours.steps, theirs.steps)
    ]
    assert facts[0] == facts[1]
    assert target.cache.length == plain.cache.length
    for (tree, scored, verdict), (other, rows, judged) in zip(trees, others, strict=True):
        assert torch.equal(tree.tokens, other.tokens)
        assert torch.equal(tree.parents, other.parents)
        assert torch.equal(tree.ancestor_mask, other.ancestor_mask)
        assert torch.equal(tree.depths, other.depths)
        assert torch.allclose(tree.edge_probs, other.edge_probs, atol=1e-5)
        assert torch.allclose(scored.logits, rows.logits, atol=1e-3)
        assert verdict.path.tolist() == judged.path.tolist()
        assert (tree.draft_probs is None) == sampling.greedy
        if tree.draft_probs is not None:
            assert torch.allclose(tree.draft_probs, other.draft_probs, atol=1e-5)
            assert torch.equal(tree.draft_rows, other.draft_rows)
    assert all(torch.equal(*pair) for pair in zip(slots, their_slots, strict=True))
    assert len({int(tree.depths.max()) for tree, _, _ in trees}) > 1 or name == "expanding", "some ended early"


def test_one_draft_serves_drafters_of_other_shapes_in_turn():
    """What one drafter made must not be sliced for the next."""
    target, draft = tiny_pair()
    drafters = [DRAFTERS[name](draft, "topk") for name in ("fork_target", "uneven", "expanding_target")]
    shared = drafters[0].draft
    for drafter in drafters[1:]:
        drafter.draft = shared
    alone = [run("causal_lm", name, "creation", Sampling(), sliced=True)[0].tokens for name in (
        "fork_target", "uneven", "expanding_target",
    )]  # fmt: skip
    for drafter, tokens in [*zip(drafters, alone, strict=True)] * 2:
        drafter.stop.asked = -1
        found = generate(target, drafter, rule_for(drafter, "topk"), PROMPT, max_new_tokens=26, allow_lossy=True)
        assert found.tokens == tokens
