"""Which of torch's attention kernels ran, as torch itself is told to choose them."""

import pytest
from cells import cell, execute
from torch.nn.attention import SDPBackend, sdpa_kernel

from specdec_trees.measure import pairs
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.kernels import AttentionKernels
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts import datasets
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
