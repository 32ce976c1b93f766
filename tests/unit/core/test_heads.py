"""Heads against their equations, in every public layout, under every drafter; and what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import heads
import pytest
import torch
from doubles import random_llama
from heads import HIDDEN, KNOWN, LAYERS, NORMS, VOCAB, load, worst_over_trees, write_eagle_3, write_medusa, write_target
from safetensors.torch import load_file, save_file

from specdec_core import Sampling, TokenTree, generate, load_pair, shapes
from specdec_core.drafters import (
    Autoregressive,
    Context,
    DFlashDraft,
    DySpec,
    DySpecHeap,
    Eagle2,
    OptTree,
    Sequoia,
    StaticTree,
    TargetInit,
)
from specdec_core.drafters.tree_drafter import draft_model_of
from specdec_core.errors import LoadError, PairError, PromptError
from specdec_core.models import ModelOutput, ModelSpec, Pair, eagle_checkpoint
from specdec_core.models.causal_lm import FINAL
from specdec_core.models.dflash_checkpoint import default_layers
from specdec_core.models.fetch import fetch_config
from specdec_core.models.head_formats import LAYER_IDS, conventions, stated_layers
from specdec_core.models.kinds import kind_of, likely_kind
from specdec_core.models.mtp import INDEX
from specdec_core.verifiers import Greedy, LongestSubtree
from specdec_trees.prompts.embedded import TINY

LAYOUTS = {"eagle": "eagle3", "speculators": "speculators", "nested": "eagle3"}
"""And the kind that each is loaded as."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("target")) / "target"


@pytest.fixture
def folder(target: Path, tmp_path: Path) -> Path:
    """With the target in it."""
    (tmp_path / "target").symlink_to(target)
    return tmp_path


def embedding(pair: Pair) -> torch.Tensor:
    return pair.target.model.get_input_embeddings().weight


@pytest.mark.parametrize(
    "norms", [(), *((norm,) for norm in NORMS), NORMS], ids=lambda norms: "-".join(norms) or "none"
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_eagle_3_head_has_the_logits_of_its_equations(layout, norms, folder):
    pair = load(write_eagle_3(folder, layout, norms), LAYOUTS[layout])
    oracle = heads.Eagle3Equations(heads.eagle_3_tensors(norms), embedding(pair), norms)
    assert pair.draft.layers == LAYERS
    worst, scale = worst_over_trees(pair, draft_model_of(pair.draft), oracle.logits)
    assert scale > 1
    assert worst < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_eagle_3_head_without_an_output_matrix_reads_the_targets(layout, folder):
    """As vLLM has it: of the tokens that it knows, by the target's rows."""
    pair = load(write_eagle_3(folder, layout, **{"lm_head.weight": None}), LAYOUTS[layout])
    rows = pair.target.model.lm_head.weight.detach()[KNOWN]
    oracle = heads.Eagle3Equations(heads.eagle_3_tensors() | {"lm_head.weight": rows}, embedding(pair))
    worst, scale = worst_over_trees(pair, draft_model_of(pair.draft), oracle.logits)
    assert scale > 1
    assert worst < 1e-5


def test_the_same_head_in_three_layouts_has_identical_logits(folder):
    pairs = [
        load(write_eagle_3(folder / layout, layout) and linked(folder, layout), kind)
        for layout, kind in LAYOUTS.items()
    ]
    tokens = torch.arange(1, 12)
    features = heads.features_of(pairs[0].target, tokens.tolist(), LAYERS)
    first, *others = (pair.draft.along(tokens, features) for pair in pairs)
    assert first.isfinite().any(-1).all()
    for other in others:
        assert torch.equal(first, other)


@pytest.mark.parametrize("kind", ["eagle3", "speculators"])
@pytest.mark.parametrize("says", [True, False, None])
def test_a_folder_in_the_speculators_format_has_its_default_whatever_kind_it_is_loaded_as(kind, says, folder):
    write_eagle_3(folder, "speculators", said={"norm_before_residual": says})
    pair, norms = load(folder, kind), () if says is False else ("norm_before_residual",)
    oracle = heads.Eagle3Equations(heads.eagle_3_tensors(), embedding(pair), norms)
    assert worst_over_trees(pair, draft_model_of(pair.draft), oracle.logits)[0] < 1e-5


@pytest.mark.parametrize("size", [VOCAB, None])
def test_unused_maps_of_a_head_that_predicts_all_tokens_are_ignored(size, folder):
    """EAGLE's own code deletes them; in some files they are zeros."""
    own = {"lm_head.weight": heads.matrix(VOCAB, HIDDEN)}
    unused = {"d2t": torch.zeros(VOCAB, dtype=torch.long), "t2d": torch.zeros(VOCAB, dtype=torch.bool)}
    tokens, found = torch.arange(1, 12), []
    for maps in (unused, {"d2t": None, "t2d": None}):
        pair = load(write_eagle_3(folder, said={"draft_vocab_size": size}, **own, **maps), "eagle3")
        features = heads.features_of(pair.target, tokens.tolist(), LAYERS)
        found.append(pair.draft.along(tokens, features))
        shutil.rmtree(folder / "head")
    assert found[0].isfinite().all()
    assert torch.equal(*found)


@pytest.mark.parametrize(("said", "room"), [
    ({"sliding_window": 8, "layer_types": ["sliding_attention"]}, 8),
    ({"sliding_window": 8, "layer_types": ["full_attention"]}, 256),
    ({"sliding_window": 8}, 256),
], ids=["slides", "full", "not_said"])  # fmt: skip
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_head_whose_layer_slides_has_as_many_positions_as_its_window(layout, said, room, folder):
    nested = {"transformer_layer_config": heads.SHAPE | said}
    pair = load(write_eagle_3(folder, layout, said=nested if layout == "speculators" else said), LAYOUTS[layout])
    assert pair.draft.max_positions == room
    drafter = StaticTree(draft=pair.draft, shape=shapes.chain(2))
    assert generate(pair.target, drafter, Greedy(), [3, 7, 11], max_new_tokens=5).tokens
    if room == 8:
        with pytest.raises(PromptError, match="the draft has 8 positions"):
            generate(pair.target, drafter, Greedy(), [3, 7, 11], max_new_tokens=6)


def linked(folder: Path, name: str) -> Path:
    (folder / name / "target").symlink_to(folder / "target")
    return folder / name


@pytest.mark.parametrize(("count", "blocks", "file"), [
    (3, 1, "medusa_lm_head.pt"), (5, 1, "medusa_lm_head.safetensors"), (2, 2, "medusa_lm_head.pt"),
])  # fmt: skip
def test_medusas_heads_have_the_logits_of_their_equations(count, blocks, file, folder):
    """Counted from the keys: the config says two. What is deeper than heads are is uniform."""
    pair = load(write_medusa(folder, count, blocks, file), "medusa")
    path = folder / "head" / file
    tensors = torch.load(path, weights_only=True) if path.suffix == ".pt" else load_file(path)
    draft = draft_model_of(pair.draft)
    assert draft.max_depth == count
    worst, scale = worst_over_trees(pair, draft, heads.MedusaEquations(tensors, blocks).logits)
    assert scale > 1
    assert worst < 1e-5


def test_a_dflash_head_has_the_logits_of_its_equations(folder):
    """With a cache over steps that accept none, two and three tokens; what is deeper than the block is uniform."""
    pair = load(heads.write_dflash(folder), "dflash")
    assert pair.draft.layers == (1, 4, -1), "transformers has the last layer's output behind the final norm"
    draft = draft_model_of(pair.draft)
    assert draft.max_depth == heads.BLOCK - 1
    oracle = heads.DFlashEquations(embedding(pair), pair.target.model.lm_head.weight)
    worst, scale = worst_over_trees(pair, draft, oracle.logits)
    assert scale > 1
    assert worst < 1e-5


@pytest.mark.parametrize("style", ["qwen", "deepseek"])
def test_a_layer_of_the_targets_own_has_the_logits_of_its_equations(style, folder):
    pair = load(heads.write_mtp(folder, style), "mtp")
    oracle = heads.MtpEquations(heads.mtp_tensors(), embedding(pair), pair.target.model.lm_head.weight)
    worst, scale = worst_over_trees(pair, draft_model_of(pair.draft), oracle.logits)
    assert scale > 1
    assert worst < 1e-5


WRITERS = {
    "eagle3": write_eagle_3,
    "speculators": lambda folder: write_eagle_3(folder, "speculators", ("norm_before_residual", "norm_before_fc")),
    "medusa": write_medusa,
    "dflash": heads.write_dflash,
    "mtp": heads.write_mtp,
}
LEVELS = {"medusa": 3, "dflash": heads.BLOCK - 1}
"""Of kinds that give all depths in one forward."""
DRAFTERS = {
    "chain": lambda head: StaticTree(draft=head, shape=shapes.chain(4)),
    "eagle25": lambda head: StaticTree(draft=head, shape=shapes.eagle25()),
    "opt_tree": lambda head: OptTree(draft=head, n=12, delta=0.05),
    "eagle2": lambda head: Eagle2(draft=head, total=12, depth=4, k=4),
    "sequoia": lambda head: Sequoia(draft=head, n=12, acceptance=[0.5, 0.2, 0.1, 0.05], depth=5),
    "dyspec": lambda head: DySpec(draft=head, n=12, draws="topk"),
    "dyspec_heap": lambda head: DySpecHeap(draft=head, n=12),
}


@pytest.mark.few(10)
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("kind", WRITERS)
def test_greedy_outputs_are_the_targets_under_every_drafter(kind, name, folder):
    pair, allowed = load(WRITERS[kind](folder), kind), set(KNOWN.tolist() if kind in LAYOUTS.values() else range(VOCAB))
    trees: list[TokenTree] = []

    def watch(tree: TokenTree, *_: object) -> None:
        trees.append(tree)

    for prompt in ([3], [3, 7, 11, 2, 9]):
        found = generate(pair.target, DRAFTERS[name](pair.draft), Greedy(), prompt, max_new_tokens=24, watch=watch)
        assert found.tokens == generate(pair.target, Autoregressive(), Greedy(), prompt, max_new_tokens=24).tokens
    assert {token for tree in trees for token in tree.tokens[1:].tolist()} <= allowed
    assert max(tree.num_drafted for tree in trees) > 1
    if kind in LEVELS:
        assert max(int(tree.depths.max()) for tree in trees) <= LEVELS[kind]
        assert {step.draft_forwards for step in found.steps} == {1}


@pytest.mark.parametrize("kind", WRITERS)
def test_below_a_virtual_root_too(kind, folder):
    pair = load(WRITERS[kind](folder), kind)
    drafter = TargetInit(draft=pair.draft, widths=[1, 2, 2, 1, 1, 1], draws="topk")
    rule, prompt = LongestSubtree(), [3, 7, 11, 2, 9]
    found = generate(pair.target, drafter, rule, prompt, max_new_tokens=24, sampling=Sampling(0.0), allow_lossy=True)
    assert found.tokens == generate(pair.target, Autoregressive(), Greedy(), prompt, max_new_tokens=24).tokens
    assert max(step.depth for step in found.steps) == LEVELS.get(kind, 5) + 1


def test_features_that_are_not_kept_are_a_sentence(folder):
    draft = draft_model_of(load(write_medusa(folder), "medusa").draft)
    with pytest.raises(PairError, match="read the target's hidden states"):
        draft.reset(torch.tensor([1, 2]), ModelOutput(torch.zeros(1, VOCAB)))


def sentence(folder: Path, kind: str = "eagle3", **options: object) -> str:
    with pytest.raises(LoadError) as refusal:
        load(folder, kind, **options)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_damaged_heads_are_one_sentence_each(target, tmp_path):
    d2t = heads.eagle_3_tensors()["d2t"]
    swapped = KNOWN.clone()
    swapped[[2, 5]] = KNOWN[[5, 2]]
    other = torch.isin(torch.arange(VOCAB), KNOWN + 1)
    cases = {
        "d2t of .* does not ascend.*shuffled": {"d2t": swapped - torch.arange(len(KNOWN))},
        "d2t of .* does not map its tokens to different ids below 31": {"d2t": d2t.flip(0)},
        "must hold d2t, a whole offset for each of its 10 tokens": {"d2t": d2t[:-1]},
        "d2t and t2d of .* name different tokens": {"t2d": other},
        "holds lm_head.weight twice": {"model.lm_head.weight": torch.ones(10, 48)},
        "cannot be read as those of a draft of kind eagle3 \\(IndexError": {
            "midlayer.self_attn.k_proj.weight": torch.tensor(1.0)
        },
        "lacks layers.0.hidden_norm.weight": {"midlayer.hidden_norm.weight": None},
        "has layers.1.norm.weight besides": {"layers.1.norm.weight": torch.ones(3)},
        "fc.weight of .* has shape \\[48, 150\\]": {"fc.weight": torch.ones(48, 150)},
        "joins the features of 2 layers, and \\[1, 3, 6\\] are given": {"fc.weight": torch.ones(48, 96)},
    }
    for number, (said, changes) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        write_eagle_3(folder, **changes)
        (folder / "target").symlink_to(target)
        assert re.search(said, sentence(folder)), sentence(folder)


def test_truncated_files_are_one_sentence(folder):
    for kind, file in (("eagle3", "pytorch_model.bin"), ("medusa", "medusa_lm_head.pt")):
        path = WRITERS[kind](folder) / "head" / file
        path.write_bytes(path.read_bytes()[:-300])
        assert "truncated" in sentence(folder, kind)
        path.unlink()
        assert "a file of tensors" in sentence(folder, kind)
        shutil.rmtree(folder / "head")


def without(name: str) -> Callable[[Path], None]:
    """The index of a checkpoint in parts, without a key."""
    return lambda head: (head / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {}} | {name: None}))


def misnamed(head: Path) -> None:
    """The index names a tensor that its part has not."""
    said = json.loads((head / INDEX).read_text())
    said["weight_map"]["mtp.other.weight"] = "model-00002-of-00002.safetensors"
    (head / INDEX).write_text(json.dumps(said))


def truncated(head: Path) -> None:
    path = head / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(("damage", "said"), [
    (truncated, "model-00002-of-00002.safetensors cannot be read as tensors alone .*truncated"),
    (lambda head: (head / "model-00002-of-00002.safetensors").unlink(), "have a file named model-00002-of-00002"),
    (lambda head: (head / INDEX).write_text('{"weight_map": {'), f"{INDEX} does not say which file holds which"),
    (lambda head: (head / INDEX).write_text("{}"), f"{INDEX} does not say which file holds which"),
    (without("weight_map"), f"{INDEX} does not say which file holds which"),
    (misnamed, f"model-00002-of-00002.safetensors of .* lacks mtp.other.weight, which {INDEX} names"),
], ids=["truncated", "no_part", "no_json", "no_map", "null", "misnamed"])  # fmt: skip
def test_damaged_layers_of_the_targets_own_are_one_sentence_each(damage, said, folder):
    damage(heads.write_mtp(folder) / "head")
    assert re.search(said, sentence(folder, "mtp")), sentence(folder, "mtp")


def test_medusas_heads_of_another_target_are_a_sentence(folder):
    path = write_medusa(folder) / "head" / "medusa_lm_head.pt"
    tensors = torch.load(path, weights_only=True)
    torch.save(tensors | {"1.1.weight": torch.ones(VOCAB, 32)}, path)
    assert "1.1.weight of" in sentence(folder, "medusa")
    del tensors["1.1.weight"]
    torch.save(tensors, path)
    assert "lacks 1.1.weight" in sentence(folder, "medusa")
    torch.save({"fc.weight": torch.ones(3)}, path)
    assert "does not hold Medusa's heads" in sentence(folder, "medusa")


def test_configs_that_say_something_else_are_sentences(folder):
    write_eagle_3(folder, "speculators", said={"speculators_model_type": "dflash"})
    assert "speculators_model_type in its config.json is 'dflash'" in sentence(folder, "speculators")
    shutil.rmtree(folder / "head")
    write_eagle_3(folder, "speculators", said={"transformer_layer_config": {"model_type": "qwen3"}})
    assert "a head of family 'qwen3'" in sentence(folder, "speculators")
    shutil.rmtree(folder / "head")
    write_eagle_3(folder, said={"target_hidden_size": 64})
    assert "made for a target of hidden size 64, not 48" in sentence(folder)


DFLASH = {"mask_token_id": heads.MASK, "target_layer_ids": [0, 3, 6]}
OTHERS = {
    "has no config.json": {"content": ""},
    "family 'llama'": {"model_type": "llama"},
    "does not say block_size": {"block_size": None},
    "does not say mask_token_id": {"dflash_config": {"target_layer_ids": [0, 3, 6]}},
    "does not say num_target_layers": {"num_target_layers": None},
    "has a block of 1": {"block_size": 1},
    "architectures DFlash2DraftModel": {"architectures": ["DFlash2DraftModel"]},
    "projector_type in dflash_config": {"dflash_config": DFLASH | {"projector_type": "domino"}},
    "has is_causal": {"is_causal": True},
    "has attn_logit_softcapping, final_logit_softcapping": {
        "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0,
    },
    "has embedding_multiplier": {"embedding_multiplier": 12.0, "logits_scaling": None},
    "has layers with a sliding window": {"layer_types": ["full_attention", "sliding_attention"]},
    "target of num_target_layers 8, not 7": {"num_target_layers": 8},
    "target of hidden_size 40, not 48": {"hidden_size": 40},
    "reads layers \\[0, 3, 7\\]": {"dflash_config": DFLASH | {"target_layer_ids": [0, 3, 7]}},
    "mask_token_id of .* is 31": {"dflash_config": DFLASH | {"mask_token_id": VOCAB}},
    "fc.weight of .* has shape \\[48, 144\\]": {"dflash_config": DFLASH | {"target_layer_ids": [0, 3]}},
    "kind dflash \\(ValueError: .*'many'": {"block_size": "many"},
}
"""What is said of a head that is not DFlash's or not this target's, and what its config says."""


@pytest.mark.parametrize("said", OTHERS)
def test_other_heads_than_dflashs_are_one_sentence_each(said, folder):
    given = OTHERS[said]
    heads.write_dflash(folder, given)
    if "content" in given:
        (folder / "head" / "config.json").unlink()
    assert re.search(said, sentence(folder, "dflash")), sentence(folder, "dflash")


@pytest.mark.parametrize(("said", "changes"), [
    ("lacks layers.1.self_attn.q_norm.weight", {"layers.1.self_attn.q_norm.weight": None}),
    ("has besides conv.weight", {"conv.weight": torch.ones(3)}),
])  # fmt: skip
def test_tensors_that_are_not_dflashs_are_named(said, changes, folder):
    heads.write_dflash(folder, **changes)
    assert said in sentence(folder, "dflash")


class Recorded(DFlashDraft):
    """Keeps the committed tokens and the rows of every step."""

    steps: list[tuple[list[int], torch.Tensor]]

    def rows(self, context: Context) -> torch.Tensor:
        rows = super().rows(context)
        self.steps.append((list(context.tokens), rows))
        return rows


@pytest.mark.parametrize("virtual", [False, True])
@pytest.mark.parametrize("prompt", [[3], [3, 7, 11, 2, 9]], ids=len)
def test_a_dflash_head_drafts_in_the_engine_what_it_would_from_scratch(prompt, virtual, folder):
    """Trees of all tokens are accepted two levels deep; of a virtual root the first level is the target's own."""
    pair = load(heads.write_dflash(folder), "dflash")
    draft = Recorded(pair.draft)
    draft.steps = []
    drafter = StaticTree(draft=draft, shape=shapes.branching([VOCAB, VOCAB]))
    if virtual:
        drafter = TargetInit(draft=draft, widths=[VOCAB, VOCAB], draws="topk")
    rule = LongestSubtree() if virtual else Greedy()
    found = generate(pair.target, drafter, rule, prompt, max_new_tokens=15, allow_lossy=virtual)
    assert found.tokens == generate(pair.target, Autoregressive(), Greedy(), prompt, max_new_tokens=15).tokens
    assert len(draft.steps) == len(found.steps) <= 8
    oracle = heads.DFlashEquations(embedding(pair), pair.target.model.lm_head.weight)
    for text, rows in draft.steps:
        goal = oracle.block(text[-1], heads.features_of(pair.target, text, draft.needs_hidden)[:-1])
        torch.testing.assert_close(rows[virtual:].double(), goal[1 + virtual :], rtol=0, atol=1e-5)


def test_a_dflash_head_takes_the_memory_of_its_tensors(folder):
    """A forward reads the target's output matrix too."""
    spec = ModelSpec(id=str(heads.write_dflash(folder) / "head"), kind="dflash")
    kind, target = kind_of(spec), fetch_config(ModelSpec(id=str(folder / "target")))
    config, tensors = kind.config(spec, target), heads.dflash_tensors().values()
    own = sum(tensor.nbytes for tensor in tensors)
    assert kind.weight_bytes(spec, config, torch.float32) == own
    assert kind.forward_bytes(spec, config, torch.float32) == own + VOCAB * HIDDEN * 4


def test_a_dflash_head_is_known_by_its_config_or_its_name():
    assert likely_kind("head", heads.DFLASH) == "dflash"
    assert likely_kind("Qwen3-8B-DFlash-b16", {}) == "dflash"


def test_layers_that_a_dflash_config_does_not_name_are_spaced_evenly(folder):
    """As the reference does; the ids of Qwen3-8B's head are those of its config."""
    assert default_layers(36, 5) == [1, 9, 17, 25, 33]
    assert default_layers(32, 1) == [16]
    silent = {"dflash_config": {"mask_token_id": heads.MASK}, "block_size": 3}
    heads.write_dflash(folder, silent, **{"fc.weight": heads.matrix(HIDDEN, 2 * HIDDEN)})
    draft = load(folder, "dflash").draft
    assert draft.layers == (2, 5)
    assert draft_model_of(draft).max_depth == 2


def test_a_dflash_head_along_a_text_is_what_it_is_at_each_root(folder):
    """Calibration reads the first mask of the block behind each token."""
    pair, text = load(heads.write_dflash(folder), "dflash"), [3, 7, 11, 2, 9, 4]
    features = heads.features_of(pair.target, text, pair.draft.layers)
    oracle = heads.DFlashEquations(embedding(pair), pair.target.model.lm_head.weight)
    found = pair.draft.along(torch.tensor(text), features)
    with torch.no_grad():
        goal = [oracle.block(text[at], features[:at])[1] for at in range(1, len(text))]
    torch.testing.assert_close(found.double(), torch.stack(goal), rtol=0, atol=1e-5)


MALFORMED = {
    "integer division": {"head_dim": 48},
    "'list' object has no attribute 'get'": {"eagle_config": [1]},
    "layer ids are a list of whole numbers, not 3": {LAYER_IDS: 3},
    "layer ids are a list of whole numbers, not \\['1', '3', '6'\\]": {LAYER_IDS: ["1", "3", "6"]},
    "layer ids are a list of whole numbers, not \\[1.0, 2, 5\\]": {LAYER_IDS: None, "target_layer_ids": [1.0, 2, 5]},
    "hidden_size": {"hidden_size": None},
    "factor": {"rope_scaling": {"rope_type": "llama3"}},
    "'many'": {"draft_vocab_size": "many"},
}
"""What the sentence names, and the config that raises it."""


@pytest.mark.parametrize("cause", MALFORMED)
def test_a_malformed_config_is_a_sentence_with_the_folder_and_the_cause(cause, folder):
    write_eagle_3(folder, said=MALFORMED[cause])
    assert re.search(f"files of {folder}/head cannot be read as .* kind eagle3 .*{cause}", sentence(folder))


@pytest.mark.parametrize("content", ["[1, 2]", "{}", None], ids=["a_list", "empty", "missing"])
@pytest.mark.parametrize("kind", ["eagle3", "speculators"])
def test_a_config_json_that_is_none_is_a_sentence(kind, content, folder):
    config = write_eagle_3(folder) / "head" / "config.json"
    config.write_text(content or "")
    if content is None:
        config.unlink()
    said = "cannot be read as" if content == "[1, 2]" else f"{folder}/head has no config.json, or an empty one"
    assert said in sentence(folder, kind)


def test_a_map_of_a_size_that_the_config_does_not_say_is_a_sentence(folder):
    write_eagle_3(folder, said={"draft_vocab_size": None})
    assert "holds d2t, a map of 10 tokens" in sentence(folder)
    assert "write draft_vocab_size: 10 there" in sentence(folder)


@pytest.mark.parametrize("said", [{"medusa_num_heads": None}, {}, None], ids=["null", "empty", "missing"])
def test_medusas_heads_are_counted_where_their_config_says_nothing(said, folder):
    config = write_medusa(folder) / "head" / "config.json"
    config.write_text(json.dumps(said))
    if said is None:
        config.unlink()
    assert draft_model_of(load(folder, "medusa").draft).max_depth == 3
    config.write_text(json.dumps({"medusa_num_heads": "some"}))
    assert "kind medusa (ValueError: invalid literal" in sentence(folder, "medusa")


def test_where_layer_ids_stand_says_what_they_count():
    ids = {"eagle_aux_hidden_state_layer_ids": [2, 9, 15]}
    assert stated_layers(ids) == ((2, 9, 15),)
    assert stated_layers({"target_layer_ids": [2, 9, 15]}) == ((3, 10, 16),)
    assert stated_layers({"eagle_config": ids}) == ((2, 9, 15), (3, 10, 16)), "vLLM's reading and SGLang's"
    assert stated_layers({"eagle_config": {"use_aux_hidden_state": False}}) == ((-1,),)
    assert stated_layers({}) == ()
    assert conventions(32) == ((2, 16, 29), (3, 17, 30))


def test_the_feature_behind_the_last_layer_is_that_before_the_final_norm():
    """Transformers' own `hidden_states` have it behind the norm."""
    model, read = random_llama(0), []
    count, norm = model.config.num_hidden_layers, model.model.model.norm
    norm.register_forward_pre_hook(lambda module, args: read.append(args[0][0]))
    tokens = torch.tensor([3, 1, 4, 1, 5])
    model.keep_hidden = (0, count)
    model.reset(8)
    found = model.extend(tokens).hidden
    assert torch.equal(found, torch.cat((model.model.get_input_embeddings()(tokens), read[0]), -1))
    model.keep_hidden = FINAL
    model.reset(8)
    assert torch.allclose(model.extend(tokens).hidden, norm(read[0]))


def embedded(tmp_path: Path, layers: list[int] | None) -> Path:
    """The embedded pair's EAGLE-3 head with other layer ids in its config."""
    folder = Path(shutil.copytree(TINY / "eagle3", tmp_path / str(layers)))
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(said | {LAYER_IDS: layers}))
    return folder


@pytest.mark.parametrize("layers", [[2, 4, 6], [0, 2, 4]])
def test_layer_ids_that_are_off_by_one_are_a_sentence(layers, tmp_path):
    options = {"id": str(embedded(tmp_path, layers)), "kind": "eagle3"}
    with pytest.raises(LoadError, match=r"reads layers .* seem wrong: .*feature_layers: \[1, 3, 5\]"):
        load_pair(str(TINY / "target"), ModelSpec(**options), device="cpu")
    for meant in ((1, 3, 5), tuple(layers)):
        pair = load_pair(str(TINY / "target"), ModelSpec(**options, feature_layers=meant), device="cpu")
        assert pair.draft.layers == meant


def test_of_two_conventions_the_better_one_is_taken_and_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(eagle_checkpoint, "conventions", lambda count: ((2, 4, 6), (1, 3, 5)))
    head = ModelSpec(id=str(embedded(tmp_path, None)), kind="eagle3")
    assert load_pair(str(TINY / "target"), head, device="cpu").draft.layers == (1, 3, 5)
    assert "taken are [1, 3, 5]" in caplog.text


def test_an_eagle_1_head_in_the_speculators_format_is_the_same_head(folder):
    torch.manual_seed(4)
    tensors = {
        name.replace("midlayer", "layers.0"): each[:, : heads.HIDDEN] if each.ndim == 2 and "_proj" in name else each
        for name, each in heads.eagle_3_tensors().items()
        if name.startswith("midlayer") and "hidden_norm" not in name and "input_layernorm" not in name
    }
    tensors["layers.0.self_attn.o_proj.weight"] = heads.eagle_3_tensors()["midlayer.self_attn.o_proj.weight"]
    tensors["layers.0.mlp.down_proj.weight"] = heads.eagle_3_tensors()["midlayer.mlp.down_proj.weight"]
    tensors["fc.weight"] = heads.matrix(heads.HIDDEN, 2 * heads.HIDDEN)
    theirs = {"fc.": "fusion_fc.", "layers.0.": "transformer."}
    renamed = {
        next(new + name.removeprefix(old) for old, new in theirs.items() if name.startswith(old)): each.contiguous()
        for name, each in tensors.items()
    }
    said = {"transformer_layer_config": heads.SHAPE, "speculators_model_type": "eagle", "fusion_bias": False}
    found = []
    for kind, config, stored in (
        ("eagle", heads.SHAPE, tensors),
        ("speculators", said, renamed | {"lm_head.weight": torch.ones(3)}),
    ):
        (folder / "head").mkdir()
        (folder / "head" / "config.json").write_text(json.dumps(config))
        save_file({name: each.contiguous() for name, each in stored.items()}, folder / "head" / "model.safetensors")
        pair = load(folder, kind)
        tokens = torch.arange(1, 9)
        found.append(pair.draft.along(tokens, heads.features_of(pair.target, tokens.tolist(), pair.draft.layers)))
        shutil.rmtree(folder / "head")
    assert torch.equal(*found)
