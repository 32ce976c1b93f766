"""Which of torch's attention kernels ran, as torch itself is told to choose them."""

import pytest
import torch
from cells import cell, execute
from jaxtyping import config as shape_checks
from torch.nn.attention import SDPBackend, sdpa_kernel

from specdec_core import load_pair
from specdec_core.layout import causal_layout
from specdec_core.models import graphs
from specdec_trees.measure import pairs
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.kernels import AttentionKernels
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts import datasets
from specdec_trees.prompts.embedded import TINY
from specdec_trees.results.store import Store

KERNELS = {SDPBackend.FLASH_ATTENTION: "flash", SDPBackend.MATH: "math"}


def met(*overrides: str, **runtime: str) -> set[str]:
    """By a warm-up on the CPU."""
    wanted, options = cell("drafter=opt_tree", *overrides), Runtime(device="cpu", num_threads=1, **runtime)
    measurement = Measurement(wanted, pairs.loaded(wanted.pair, options), Rows(), options)
    measurement.warm_up(*datasets.load(wanted.dataset, data_dir=None, limit=1))
    return measurement.attention_kernels


@pytest.mark.parametrize("backend", KERNELS)
def test_the_kernel_that_torch_is_told_to_take(backend):
    with sdpa_kernel(backend):
        assert met() == {KERNELS[backend]}


def test_attention_that_torch_has_no_kernel_for():
    assert met(attention="eager") == set()
    assert met(attention="tree_split") == {"flash"}, "called by name"


@pytest.mark.parametrize(("dtype", "names"), [("bfloat16", {"flash"}), ("float32", set())])
def test_kernels_of_compiled_forwards_are_those_that_were_traced(dtype, names, monkeypatch):
    monkeypatch.setattr(graphs, "_options", lambda device: {"backend": "eager"})
    shape_checks.update("jaxtyping_disable", True)  # checks of shapes are no part of a graph
    pair = load_pair(str(TINY / "target"), dtype=dtype, graphs="compile")
    pair.target.reset(8)
    pair.target.prefill(torch.tensor([5, 9, 11, 3]))
    layout = causal_layout(5, prefix=4, device=pair.target.device, dtype=pair.target.dtype)

    def logits() -> torch.Tensor:
        pair.target.cache.truncate(4)
        return pair.target(torch.arange(5), layout).logits

    compiled = logits()
    with AttentionKernels() as kernels, pair.traced():
        assert torch.equal(logits(), compiled)
    assert kernels.names == names, "in float32 a CPU's are products"
    with pair.sealed():
        assert torch.equal(logits(), compiled)
        assert pair.mode == "compile", "again"
    torch._dynamo.reset()


def test_nothing_is_noted_outside(tiny):
    with AttentionKernels() as kernels:
        pass
    tiny.target.model(input_ids=tiny.tokenizer("text", return_tensors="pt")["input_ids"])
    assert kernels.names == set()


def test_rows_say_which_ran_unless_nothing_was_timed(tmp_path):
    assert execute(tmp_path, "runtime.warmup_conversations=1", "limit=1", "decoding.max_new_tokens=4") == "ok"
    assert Store(tmp_path, "default").read("runs")["attention_kernels"].tolist() == ["flash"]
    assert execute(tmp_path / "replayed", "runtime.replay=true", "limit=1", "decoding.max_new_tokens=4") == "ok"
    assert Store(tmp_path / "replayed", "default").read("runs")["attention_kernels"].isna().all()
