"""What only two GPUs can show: a spread target and a draft elsewhere give the tokens of one device."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from specdec_core import Sampling, TokenTree, generate, load_pair, shapes
from specdec_core.drafters import OptTree, StaticTree
from specdec_core.models import Pair
from specdec_core.verifiers import Greedy, SpecInfer
from specdec_trees.prompts.embedded import TINY

TARGET, DRAFT = str(TINY / "target"), str(TINY / "draft")
PROMPT = [5, 9, 11, 3]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")]


def spread() -> dict[str, int]:
    """The first half of the layers on the first GPU, the rest on the second."""
    count = json.loads((TINY / "target" / "config.json").read_text())["num_hidden_layers"]
    layers = {f"model.layers.{number}": int(number >= count // 2) for number in range(count)}
    return {"model.embed_tokens": 0, "model.rotary_emb": 0, **layers, "model.norm": 1, "lm_head": 0}  # tied


def greedy(pair: Pair) -> list[int]:
    drafter = OptTree(draft=pair.draft, n=25, delta=0.2)
    return generate(pair.target, drafter, Greedy(), PROMPT, max_new_tokens=64).tokens


@pytest.fixture(scope="module")
def one() -> list[int]:
    return greedy(load_pair(TARGET, DRAFT, device="cuda:0", dtype="float32"))


@pytest.mark.parametrize("draft_device", [None, "cuda:0", "cuda:1"])
@pytest.mark.parametrize("device_map", ["auto", "spread", None])
def test_the_same_tokens_wherever_target_and_draft_are(device_map, draft_device, one):
    chosen = spread() if device_map == "spread" else device_map
    options = {"device_map": chosen} if chosen else {"device": "cuda:0"}
    pair = load_pair(TARGET, DRAFT, dtype="float32", draft_device=draft_device, **options)
    assert pair.draft.device == torch.device(draft_device or pair.target.device)
    assert greedy(pair) == one
    if device_map == "spread":
        assert {layer.keys.device for layer in pair.target.cache.layers} == {torch.device("cuda", i) for i in (0, 1)}


def test_a_sampling_draft_elsewhere_draws_from_its_own_stream_and_its_tree_moves_once(monkeypatch):
    pair = load_pair(TARGET, DRAFT, device="cuda:0", draft_device="cuda:1", dtype="float32")
    moves, to = [], TokenTree.to
    monkeypatch.setattr(TokenTree, "to", lambda tree, device: (moves.append(tree.tokens.device), to(tree, device))[1])
    drafter = StaticTree(draft=pair.draft, shape=shapes.kary(2, 3), draws="iid")

    def run() -> tuple[list[int], float]:
        done = generate(pair.target, drafter, SpecInfer(), PROMPT, max_new_tokens=48, sampling=Sampling(0.6))
        assert moves == [torch.device("cuda:1")] * len(done.steps)
        moves.clear()
        return done.tokens, sum(step.draft_s for step in done.steps) / done.decode_s

    tokens, share = run()
    assert run()[0] == tokens
    assert 0.05 < share < 1, "draft forwards are timed on the draft's device"


@pytest.mark.real_gpu
def test_two_ranks_give_the_tokens_of_one_gpu(one, tmp_path):
    script = tmp_path / "rank.py"
    script.write_text(
        "import json, sys\nfrom test_two_devices import *\n"
        "pair = load_pair(TARGET, DRAFT, tensor_parallel=True, dtype='float32')\n"
        "open(f'{sys.argv[1]}/{pair.target.device.index}.json', 'w').write(json.dumps(greedy(pair)))\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    environment = os.environ | {"PYTHONPATH": ":".join(folders)}
    subprocess.run([*launch, str(script), str(tmp_path)], env=environment, check=True, timeout=300)
    assert [json.loads((tmp_path / f"{index}.json").read_text()) for index in range(2)] == [one, one]
