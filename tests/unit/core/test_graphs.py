"""Forwards in graphs: the logits of every architecture, the same tokens, one graph however long the text becomes."""

import copy
import shutil

import pytest
import torch
from architectures import CONFIGS, VOCAB, both, by_paths, by_tree, close, commit_path
from doubles import random_tree
from jaxtyping import config as shape_checks
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters
from transformers import LlamaConfig

from specdec_core import CausalLM, generate, load_pair
from specdec_core.drafters import OptTree
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec, graphs
from specdec_core.models.causal_lm import FINAL
from specdec_core.models.graphs import Graphs, usable
from specdec_core.verifiers import Greedy

CPU = torch.device("cpu")
TARGET = "specdec_trees/tiny/target"
DRAFTS = (ModelSpec(id="specdec_trees/tiny/draft"), ModelSpec(id="specdec_trees/tiny/eagle", kind="eagle"))


@pytest.fixture(autouse=True)
def _unchecked():
    """Checks of shapes are no part of a graph."""
    shape_checks.update("jaxtyping_disable", True)
    yield
    torch._dynamo.reset()


@pytest.fixture
def counted(monkeypatch) -> CompileCounterWithBackend:
    """In place of inductor: graphs are counted and run as they were traced, behind the guards that ours have."""
    counter, guards = CompileCounterWithBackend("eager"), graphs._options(CPU)["options"]["guard_filter_fn"]
    monkeypatch.setattr(graphs, "_options", lambda device: {"backend": counter, "options": {"guard_filter_fn": guards}})
    return counter


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture_scores_trees_as_path_by_path(name, rng, counted):
    own, model = both(name)
    model.graphs = Graphs(model)
    prefix, model.keep_hidden = [5, 9, 11, 3], FINAL
    model.reset(8)
    model.prefill(torch.tensor(prefix))
    for size in (7, 5, 1, 8):
        tree, start = random_tree(size, VOCAB, rng), model.cache.length
        output = by_tree(model, tree)
        assert close(output.logits, by_paths(own, prefix, tree))
        with torch.inference_mode():
            assert close(own.get_output_embeddings()(output.hidden), output.logits)
        prefix += commit_path(model, tree, start, int(tree.depths.argmax()))
    assert counted.frame_count == 2  # of 8 tokens and of 1


def test_models_of_one_shape_have_graphs_of_their_own(rng, counted):
    """No guard tells their weights apart."""
    own, model = both("llama-2")
    shifted = CausalLM(copy.deepcopy(own))
    with torch.no_grad():
        shifted.model.get_output_embeddings().weight.neg_()
    tree, prefix = random_tree(7, VOCAB, rng), [5, 9, 11, 3]
    for lm in (model, shifted):
        lm.graphs = Graphs(lm)
        lm.reset(8)
        lm.prefill(torch.tensor(prefix))
    expected = by_paths(own, prefix, tree)
    assert close(by_tree(model, tree).logits, expected)
    assert close(by_tree(shifted, tree).logits, -expected)
    assert counted.frame_count == 2


def test_what_is_not_finite_behind_the_text_does_not_spoil_the_next(rng, counted):
    own, model = both("llama-2")
    model.graphs = Graphs(model)
    for _ in range(2):
        model.reset(8)
        model.prefill(torch.tensor([5, 9, 11, 3]))
        tree = random_tree(7, VOCAB, rng)
        assert close(by_tree(model, tree).logits, by_paths(own, [5, 9, 11, 3], tree))
        for buffer in model.cache.buffers:
            buffer.fill_(torch.nan)


def decoded(pair, drafter, new: int = 256) -> list[int]:
    prompt = pair.tokenizer("def read_file(path):\n")["input_ids"]
    return generate(pair.target, drafter(pair.draft), Greedy(), prompt, max_new_tokens=new).tokens


def opt_tree(draft) -> OptTree:
    return OptTree(draft=draft, n=25, delta=0.2)


@pytest.mark.long
@pytest.mark.parametrize("draft_spec", DRAFTS, ids=lambda spec: spec.kind)
def test_nothing_is_compiled_again_as_the_text_grows(counted, draft_spec):
    eager, compiled = (load_pair(TARGET, draft_spec, graphs=how) for how in ("eager", "compile"))
    assert not eager.graphs
    expected = decoded(eager, opt_tree)
    assert decoded(compiled, opt_tree) == expected
    target, draft = compiled.graphs
    made = counted.frame_count
    assert [size for size, _ in target._sizes] == [32]  # 26 tokens, whatever the tree
    assert made == 1 + len(draft._sizes)
    assert decoded(compiled, opt_tree) == expected
    assert counted.frame_count == made
    with compiled.sealed():
        assert (target.size(3), target.size(33), target.missed) == (32, None, 1)
        assert decoded(compiled, lambda draft: OptTree(draft=draft, n=40, delta=0.2)) == expected
        assert target.missed > 1, "trees of 41 tokens are scored eagerly"
        assert (compiled.mode, eager.mode) == ("mixed", "eager")
    with compiled.sealed():
        assert compiled.mode is None
        decoded(compiled, opt_tree, new=8)
        assert compiled.mode == "compile"
    assert counted.frame_count == made
    assert not target.sealed


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_compiled_logits_are_the_eager_ones(rng, monkeypatch):
    asked = graphs._options
    plain = {"max_autotune": False}  # it takes minutes
    monkeypatch.setattr(graphs, "_options", lambda device: {"options": asked(device)["options"] | plain})
    own, model = both("llama-3.2")
    model.graphs = Graphs(model)
    model.prefill(torch.tensor([5, 9, 11, 3]))
    tree = random_tree(7, VOCAB, rng)
    counters.clear()
    with torch._inductor.config.patch(force_disable_caches=True):
        logits = by_tree(model, tree).logits
    assert close(logits, by_paths(own, [5, 9, 11, 3], tree))
    packed = counters["inductor"]["mkldnn_linear_weight_pack_matcher_count"]
    assert packed == 9, "of 2 layers those of queries, keys, values as one, gate and up as one; the output matrix"
    assert model.graphs.seconds > 0
    assert str(model.graphs).startswith("graphs of 8 tokens, compiled in ")


def test_what_graphs_cannot_hold_is_said_before_weights_are_read():
    with pytest.raises(LoadError, match=r"runtime.graphs is auto, eager, packed or compile, not 'on'"):
        load_pair(TARGET, graphs="on")
    with pytest.raises(LoadError, match=r"goes with runtime.attention=sdpa or eager, not with tree_split"):
        load_pair(TARGET, graphs="compile", attention="tree_split")
    with pytest.raises(LoadError, match="is for models that are whole on one device"):
        load_pair(ModelSpec(id=TARGET, offload=True), graphs="compile")
    longer = LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10_000.0})
    with pytest.raises(LoadError, match="positions of llama depend on the length of the text"):
        usable("compile", "sdpa", CPU, [longer], whole=True)


def test_an_older_torch_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    with pytest.raises(LoadError, match=r"needs torch 2\.13, and this is 2\.9\.1\+cpu"):
        usable("compile", "sdpa", CPU, [], whole=True)
    assert usable("eager", "sdpa", CPU, [], whole=True) == "eager"


def test_without_a_compiler_it_is_eager_with_a_warning(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(UserWarning, match="needs a C\\+\\+ compiler, and there is no no-such-compiler"):
        assert usable("compile", "sdpa", CPU, [], whole=True) == "eager"
    assert isinstance(load_pair(TARGET).target, CausalLM)
