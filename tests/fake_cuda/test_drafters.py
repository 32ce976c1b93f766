"""Every drafter and rule decodes on a GPU what it decodes on the CPU, and no step asks for more than it did.

`counts.csv` has what a step asked for. A change may lower it; `python -m fake_cuda` writes it anew.
"""

import pandas as pd
import pytest
import torch
from cells import config

from fake_cuda.counts import CASES, COUNTS, Case, decoded, digest, warm
from fake_cuda.phases import counted
from specdec_core import generate
from specdec_core.drafters import OptTree
from specdec_core.models import load_pair
from specdec_core.verifiers import TargetSample
from specdec_trees.configs.cells import cell_of
from specdec_trees.configs.variants import choices
from specdec_trees.measure.kernels import AttentionKernels
from specdec_trees.prompts.embedded import TINY
from specdec_trees.prove import CHAINS, DRAWN_BY

pytestmark = pytest.mark.fake_gpu


@pytest.fixture(scope="module")
def written() -> pd.DataFrame:
    warm()
    return pd.read_csv(COUNTS, index_col="case")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_cpus_tokens_without_more_launches_or_waits(case, written):
    on_cpu, _ = decoded(case, "cpu")
    on_device, asked = decoded(case, "cuda")
    assert on_device == on_cpu
    before = written.loc[str(case)]
    if (before["torch"], before["tokens"]) != (torch.__version__, digest(on_device)):
        pytest.skip(f"counts.csv is of torch {before['torch']}, and of the tokens that it drew")
    assert {name: number for name, number in asked.items() if number > before[name]} == {}


RULES = [name for name in choices("verifier") if name not in ("by_draws", "by_draws_eagle", "by_root", "greedy")]


@pytest.mark.parametrize("name", RULES)
def test_every_rule_judges_as_on_the_cpu(name):
    rule = cell_of(config(f"verifier={name}", "verifier.allow_lossy=true", "decoding=t07", "drafter=sd")).rule
    drafter = "ti_mcsd" if getattr(rule, "virtual_root", False) else "sd" if name in CHAINS else "sized_spec_infer"
    drafter = DRAWN_BY["greedy_one"] if rule.lossless_for == {"greedy_one"} else drafter
    case = Case("spec_infer_5x8" if name == "gbv" else drafter, 0.7, size=25)
    assert decoded(case, "cuda", rule)[0] == decoded(case, "cpu", rule)[0]


@pytest.mark.parametrize("cudnn", [True, False])
def test_rows_would_name_the_attention_that_runs(cudnn):
    pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cuda", dtype="bfloat16")
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    try:
        with AttentionKernels() as kernels:
            drafter = OptTree(draft=pair.draft, n=12)
            generate(pair.target, drafter, TargetSample(), [5, 9, 11, 3], max_new_tokens=4)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(False)
    assert kernels.names == ({"cudnn"} if cudnn else {"flash", "efficient"})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_loaded_pair_never_runs_attention_that_plans_for_every_shape(dtype):
    torch.backends.cuda.enable_cudnn_sdp(True)
    pair = load_pair(str(TINY / "target"), str(TINY / "draft"), device="cuda", dtype=dtype)
    drafter = OptTree(draft=pair.draft, n=12, delta=0.1)
    _, counts = counted(pair.target, drafter, TargetSample(), [5, 9, 11, 3], max_new_tokens=12)
    kernels = {name.split()[0] for phase in counts.values() for name in phase.where("launch")}
    plain = "flash" if dtype == "bfloat16" else "efficient"
    assert {name for name in kernels if "attention" in name} <= {"attention.efficient", f"attention.{plain}"}
    assert "attention.efficient" in kernels, "a tree's"
