"""Every architecture scores trees as it reads plain text: each node as its root-to-node path fed alone."""

import copy

import pytest
import torch
from architectures import CONFIGS, LAST, VOCAB, both, by_paths, by_tree, close, commit_path, plain, stock, ulp
from doubles import context_for, random_tree
from torch import Tensor
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from specdec_core import CausalLM, Verdict, generate
from specdec_core.drafters import StaticTree
from specdec_core.drafters.causal_draft import CausalDraft
from specdec_core.layout import Layout, tree_layout
from specdec_core.models import ModelOutput
from specdec_core.models.causal_lm import FINAL
from specdec_core.shapes import eagle25
from specdec_core.verifiers import Greedy

PROMPT = [5, 9, 11, 3]
SOME = Verdict(torch.zeros(1, dtype=torch.long), (), 0)  # a draft with its own cache does not look at it
ULPS = 8
"""Between tree and path in bfloat16, in units of the last of 8 bits of the largest logit; at most 5.0 was measured."""
BLOOMS = [name for name, config in CONFIGS.items() if config.model_type == "bloom"]
ENDING = ["opt", "opt-350m", "gpt2"]


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Models of this size wait for a second thread longer than it computes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=CONFIGS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_tree_logits_and_features_equal_path_by_path_through_commits_and_truncation(name, rng):
    own, model = both(name)
    prefix, model.keep_hidden = list(PROMPT), FINAL
    model.reset(8)  # too small on purpose: the cache has to grow
    output = model.prefill(torch.tensor(prefix))
    assert (output.logits.shape, output.hidden.shape[0]) == ((1, VOCAB), 4)
    assert close(output.logits[0], plain(own, prefix))
    for node in (None, 16, 9, 0):  # the deepest; a leaf; another; the root alone
        tree, start = random_tree(17, VOCAB, rng), model.cache.length
        oracle, output = by_paths(own, prefix, tree), by_tree(model, tree)
        assert close(output.logits, oracle)
        assert torch.equal(output.logits.argmax(-1), oracle.argmax(-1))
        with torch.inference_mode():
            assert close(own.get_output_embeddings()(output.hidden), output.logits)
        prefix += commit_path(model, tree, start, int(tree.depths.argmax()) if node is None else node)
        assert model.cache.length == len(prefix)
    model.cache.truncate(len(prefix) - 3)
    prefix[-3:] = [7, 8]
    assert close(model.extend(torch.tensor(prefix[-2:])).logits[-1], plain(own, prefix))
    assert close(by_tree(model, tree).logits, by_paths(own, prefix, tree))


def test_a_tree_that_a_draft_grows_layer_by_layer_equals_path_by_path(name, rng):
    """Nodes hang anywhere above their layer, so that positions in the draft's cache are not in order."""
    own, model = both(name)
    draft, context = CausalDraft(model), context_for(PROMPT[-1], tuple(PROMPT[:-1]))
    draft.reset(torch.tensor(PROMPT[:-1]), ModelOutput(torch.zeros(1, VOCAB)))
    for widths in ([3, 4, 2, 5], [1], [], [4, 4, 4]):
        assert close(draft.begin(context).logits[0], plain(own, context.tokens))
        paths: list[list[int]] = []  # slots from the root's child to each slot
        tokens: list[int] = []
        for width in widths:
            parents = torch.randint(-1, len(tokens), (width,), generator=rng) if tokens else torch.full((width,), -1)
            new = torch.randint(VOCAB, (width,), generator=rng)
            paths += [[*(paths[p] if p >= 0 else []), len(tokens) + i] for i, p in enumerate(parents.tolist())]
            tokens += new.tolist()
            oracle = [plain(own, context.tokens + [tokens[slot] for slot in path]) for path in paths[-width:]]
            assert close(draft.expand(new, parents).logits, torch.stack(oracle))
        kept = max(paths, key=len, default=[])
        draft.commit(torch.tensor(kept, dtype=torch.long), SOME, ModelOutput(torch.zeros(1, VOCAB)))
        context.tokens += [*(tokens[slot] for slot in kept), int(torch.randint(VOCAB, (), generator=rng))]


def greedy(name: str, dtype: torch.dtype) -> tuple[list[int], list[int], list[int]]:
    """Tokens of transformers' generate, of ours with trees, and how many drafted tokens each of our steps took."""
    own, target = both(name, dtype)
    draft = copy.deepcopy(own)
    with torch.no_grad():
        for parameter in draft.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    options = {"max_new_tokens": 30, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    expected = own.generate(torch.tensor([PROMPT]), attention_mask=torch.ones(1, 4, dtype=torch.long), **options)
    drafter = StaticTree(draft=CausalLM(draft), shape=eagle25())
    result = generate(target, drafter, Greedy(), PROMPT, max_new_tokens=30)
    return expected[0, 4:].tolist(), result.tokens, [step.num_accepted for step in result.steps]


def test_greedy_decoding_with_trees_is_transformers_own(name):
    expected, ours, accepted = greedy(name, torch.float32)
    assert ours == expected
    assert max(accepted) > 1, "deeper paths were committed"


def test_bfloat16_differs_only_within_the_gap_between_the_two_best(name, rng):
    """Tree and path round differently, by less than bfloat16 itself costs; only near ties can fall the other way."""
    own, model = both(name, torch.bfloat16)
    exact, prefix, ours, paths, truth = copy.deepcopy(own).float(), list(PROMPT), [], [], []
    model.reset(64)
    model.prefill(torch.tensor(prefix))
    for _ in range(3):
        tree, start = random_tree(17, VOCAB, rng), model.cache.length
        ours.append(by_tree(model, tree).logits.float())
        paths.append(by_paths(own, prefix, tree).float())
        truth.append(by_paths(exact, prefix, tree))
        prefix += commit_path(model, tree, start, 12)
    tree_logits, path_logits, true_logits = map(torch.cat, (ours, paths, truth))
    deviation = float((tree_logits - path_logits).abs().max())
    assert deviation <= ULPS * ulp(path_logits)
    assert deviation <= 2 * float((path_logits - true_logits).abs().max())
    best = path_logits.topk(2).values
    clear = best[:, 0] - best[:, 1] > 2 * deviation
    assert torch.equal(tree_logits.argmax(-1)[clear], path_logits.argmax(-1)[clear])
    assert clear.float().mean() > 0.5, "otherwise the line above says little"


@pytest.mark.long
def test_bfloat16_decoding_leaves_transformers_own_only_at_a_near_tie(name):
    expected, ours, _ = greedy(name, torch.bfloat16)
    if ours != expected:
        at = next(i for i, (a, b) in enumerate(zip(ours, expected, strict=True)) if a != b)
        logits = plain(stock(name, torch.bfloat16), PROMPT + ours[:at]).float()
        assert logits[[ours[at], expected[at]]].sub(logits.max()).abs().max() <= 2 * ULPS * ulp(logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_comparison_sees_wrong_masks_and_positions(name, dtype, rng):
    own, model = both(name, dtype)
    model.reset(64)
    model.prefill(torch.tensor(PROMPT))
    tree, causal = random_tree(17, VOCAB, rng), torch.ones(17, 17, dtype=torch.bool).tril()
    right = tree_layout(tree.ancestor_mask, tree.depths, prefix=4, dtype=dtype)
    wrong = [tree_layout(causal, tree.depths, prefix=4, dtype=dtype)]
    if name not in BLOOMS:  # which reads positions off the mask
        wrong.append(Layout(right.mask, torch.arange(4, 21)[None]))
    oracle = by_paths(own, PROMPT, tree).float()
    for layout in wrong:
        model.cache.truncate(4)
        assert (model(tree.tokens, layout).logits.float() - oracle).abs().max() > 4 * ULPS * ulp(oracle)


@pytest.mark.parametrize("name", BLOOMS)
def test_bloom_without_the_adapter_or_with_biases_by_slot_is_seen(name, rng):
    own, model = both(name)
    tree, decoder = random_tree(17, VOCAB, rng), model.model.get_decoder()
    model.reset(64)
    model.prefill(torch.tensor(PROMPT))
    adapted, decoder.build_alibi_tensor = decoder.build_alibi_tensor, by_slot
    assert (by_tree(model, tree).logits - by_paths(own, PROMPT, tree)).abs().max() > 0.1
    model.cache.truncate(4)
    decoder.build_alibi_tensor = adapted
    assert close(by_tree(model, tree).logits, by_paths(own, PROMPT, tree))
    del decoder.build_alibi_tensor
    with pytest.raises(ValueError, match="too many values to unpack"):
        by_tree(model, tree)


def by_slot(mask: Tensor, num_heads: int, dtype: torch.dtype) -> Tensor:
    return build_alibi_tensor(torch.ones(1, mask.shape[-1]), num_heads, dtype)


@pytest.mark.parametrize("name", ENDING)
def test_up_to_the_last_position_all_is_right_and_past_it_nothing_crashes(name, rng):
    """Learned positions end in a table."""
    own, model = both(name)
    assert model.max_positions == LAST
    prefix = torch.randint(VOCAB, (LAST - 4,), generator=rng).tolist()
    model.reset(8)
    model.prefill(torch.tensor(prefix))
    tree = random_tree(17, VOCAB, rng)
    logits, inside = by_tree(model, tree).logits, tree.depths < 4
    assert {3, 4} <= set(tree.depths.tolist())
    for node in inside.nonzero().flatten().tolist():
        path = tree.tokens[tree.ancestor_mask[node]].tolist()
        assert close(logits[node], plain(own, prefix + path))
    assert logits.isfinite().all()
