"""Where models go: a target on several simulated devices gives the tokens that it gives on one; what is refused."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from checkpoints import checkpoint
from doubles import TableDraft, random_llama, random_tree
from huggingface_hub import constants
from safetensors.torch import save_file

from specdec_core import Sampling, TokenTree, generate, load_pair, shapes
from specdec_core.drafters import OptTree, StaticTree
from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec, Pair, fetch, loading
from specdec_core.models.causal_lm import FINAL
from specdec_core.models.eagle import EagleModel
from specdec_core.models.eagle_checkpoint import FILES
from specdec_core.models.placement import Placement, placed
from specdec_core.verifiers import Greedy, SpecInfer

PROMPT = [3, 7, 1]
BIG = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.4,
}
LAYERS = [f"model.layers.{number}" for number in range(3)]
PARTS = ["model.embed_tokens", *LAYERS, "model.norm", "model.rotary_emb", "lm_head"]
MAPS = {
    name: {part: "disk" if part in streamed else "cpu" for part in PARTS}
    for name, streamed in {
        "two layers on disk": LAYERS[1:],
        "all but the last on disk": PARTS[:-1],
        "embedding on disk": PARTS[:1],
        "output matrix on disk": PARTS[-1:],
    }.items()
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    return str(checkpoint(tmp_path_factory.mktemp("models") / "three", **BIG))


@pytest.fixture(scope="module")
def resident(saved: str) -> Pair:
    return load_pair(saved, saved, device="cpu", dtype="float32")


def outputs(pair: Pair) -> list[list[int]]:
    """Greedy with an adaptive tree, and sampled with drawn children."""
    drawn = StaticTree(draft=pair.draft, shape=shapes.kary(2, 3), draws="iid", draft_temperature=2.0)
    ways = ((OptTree(draft=pair.draft, n=9, delta=0.1), Greedy(), Sampling()), (drawn, SpecInfer(), Sampling(1.0)))
    return [
        generate(pair.target, drafter, rule, PROMPT, max_new_tokens=20, sampling=sampling).tokens
        for drafter, rule, sampling in ways
    ]


@pytest.mark.parametrize("name", MAPS)
def test_a_target_on_two_devices_gives_the_tokens_of_one(name, saved, resident):
    pair = load_pair(saved, saved, device_map=MAPS[name], dtype="float32")
    assert any(parameter.is_meta for parameter in pair.target.model.parameters())
    assert pair.target.device == pair.draft.device == torch.device("cpu")
    assert outputs(pair) == outputs(resident)


def test_features_of_a_spread_target_are_those_of_one_device(saved, resident):
    spread = load_pair(saved, device_map=MAPS["all but the last on disk"], dtype="float32").target
    found = []
    for model in (spread, resident.target):
        model.keep_hidden = FINAL
        model.reset(8)
        found.append(model.prefill(torch.tensor(PROMPT)).hidden)
        model.keep_hidden = ()
    assert torch.equal(*found)


@pytest.mark.parametrize(
    "skipped", [{"skipped_layers": (1,)}, {"skipped_attention": (0,), "skipped_mlp": (1,)}], ids=str
)
@pytest.mark.parametrize("name", MAPS)
def test_a_target_that_drafts_for_itself_may_be_spread(name, skipped, saved):
    """Accelerate binds `forward` to the modules it was given, so that a copy would run all layers."""
    own = ModelSpec(id=saved, kind="layer_skip", **skipped)
    pairs = [load_pair(saved, own, dtype="float32", device_map=device_map) for device_map in (None, MAPS[name])]
    logits = []
    for pair in pairs:
        pair.draft.reset(8)
        logits.append(pair.draft.prefill(torch.tensor(PROMPT)).logits)
        pair.target.reset(8)
        full = pair.target.prefill(torch.tensor(PROMPT)).logits
        assert not torch.equal(logits[-1], full)
    assert torch.equal(*logits)
    assert outputs(pairs[0]) == outputs(pairs[1])


def test_the_tree_is_moved_once_per_step_and_draws_come_from_the_drafts_own_stream(monkeypatch):
    """`cpu:0` computes as `cpu` does, but is another device to whoever compares them."""
    moves, seen, own = [], [], []

    def move(tree: TokenTree, device: torch.device) -> TokenTree:
        moves.append(device)
        return tree

    monkeypatch.setattr(TokenTree, "to", move)
    target = random_llama(0)

    def run(device: torch.device) -> list[int]:
        draft = TableDraft(61, lambda path: torch.ones(61) / 61)
        draft.device = device
        drafter = StaticTree(draft=draft, shape=shapes.kary(2, 2), draws="iid")
        grow = drafter.grow
        drafter.grow = lambda context: (seen.append(context.rng), grow(context))[1]
        rng = torch.Generator().manual_seed(0)
        done = generate(target, drafter, SpecInfer(), PROMPT, max_new_tokens=9, sampling=Sampling(1.0), rng=rng)
        own.append(rng)
        assert len(moves) == len(done.steps)
        return done.tokens

    run(torch.device("cpu"))
    assert set(seen) == set(own)
    moves.clear(), seen.clear(), own.clear()
    first = run(torch.device("cpu", 0))
    assert set(moves) == {target.device}
    assert len(set(seen)) == 1
    assert not set(seen) & set(own)
    moves.clear()
    assert run(torch.device("cpu", 0)) == first, "the draft's stream is seeded by the target's"


def test_a_tree_moves_with_all_that_it_holds(rng):
    tree = random_tree(9, 61, rng)
    full = TokenTree(tree.tokens, tree.parents, tree.edge_probs, torch.ones(2, 61), torch.zeros(9, dtype=torch.long))
    assert full.to(torch.device("cpu")) is full
    moved = full.to(torch.device("meta"))
    for name in ("tokens", "parents", "edge_probs", "draft_probs", "draft_rows"):
        part, before = getattr(moved, name), getattr(full, name)
        assert (part.is_meta, part.shape, part.dtype) == (True, before.shape, before.dtype)
    assert tree.to(torch.device("meta")).draft_probs is None


def eagle_head(folder: Path, *, own_embedding: bool) -> Path:
    """Random weights in the published format."""
    config = transformers.LlamaConfig(vocab_size=20, **BIG | {"num_hidden_layers": 1})
    torch.manual_seed(1)
    tensors = EagleModel(config, bias=True).state_dict()
    config.save_pretrained(folder)
    save_file({name: t for name, t in tensors.items() if own_embedding or "embed" not in name}, folder / FILES[0])
    return folder


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("own_embedding", [True, False], ids=["own embedding", "the target's embedding"])
def test_an_eagle_head_needs_the_targets_matrices_on_a_device(name, own_embedding, saved, tmp_path):
    head = ModelSpec(id=str(eagle_head(tmp_path / "head", own_embedding=own_embedding)), kind="eagle")
    lost = "lm_head" if MAPS[name]["lm_head"] == "disk" else "" if own_embedding else "model.embed_tokens"
    options = {"device_map": MAPS[name], "dtype": "float32"}
    if lost and MAPS[name][lost] == "disk":
        assert "leaves on the host or the disk; give them a device in device_map" in sentence(saved, head, **options)
    else:
        expected = outputs(load_pair(saved, head, device="cpu", dtype="float32"))
        assert outputs(load_pair(saved, head, **options)) == expected


def sentence(*models: Any, **options: Any) -> str:
    with pytest.raises(LoadError) as refusal:
        load_pair(*models, **options)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_placements_that_there_are_not(saved, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "choose one of them" in sentence(saved, device_map="auto", tensor_parallel=True)
    for options in ({"device_map": "auto"}, {"tensor_parallel": True}):
        assert "use device=auto, not cpu" in sentence(saved, device="cpu", **options)
        offloaded = ModelSpec(id=saved, offload=True)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"LOCAL_RANK": "0", "RANK": "0", "WORLD_SIZE": "2"}.items():
                patch.setenv(name, value)
            assert "leave out device_map and tensor_parallel" in sentence(offloaded, **options)
            assert "leave draft_device out" in sentence(saved, tensor_parallel=True, draft_device="cpu")
    assert "torchrun --nproc-per-node=<GPUs>" in sentence(saved, tensor_parallel=True)
    assert "device_map is auto, balanced" in sentence(saved, device_map="everywhere")
    for place in (0, "cuda", "cuda:1"):
        assert "this machine shows no CUDA device" in sentence(saved, device_map={"": place})
    assert "unknown runtime.device_map=nowhere" in sentence(saved, device_map={"": "nowhere"})
    assert "runtime.draft_device=cuda, but this machine shows no CUDA" in sentence(saved, draft_device="cuda")
    own = ModelSpec(id=saved, kind="layer_skip", skipped_layers=(1,))
    assert "is where the target is; leave draft_device out" in sentence(saved, own, draft_device="cpu")


def test_one_device_is_one_device_also_by_a_map(saved, resident):
    for device_map in ("auto", {"": "cpu"}):
        pair = load_pair(saved, saved, device_map=device_map, dtype="float32", draft_device="cpu")
        assert outputs(pair) == outputs(resident)


def test_devices_of_a_placement(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    cpu, *gpus = (torch.device(name) for name in ("cpu", "cuda:0", "cuda:1"))
    assert placed("auto", device_map="auto").pool == tuple(gpus)
    found = placed("auto", device_map={"a": "cpu", "b": 1, "c": "disk", "d": "cuda:1"}, draft_device="cuda:0")
    assert found.pool == (cpu, gpus[1], torch.device("meta"))
    assert (found.device, found.draft) == (gpus[1], gpus[0])
    for name, value in {"LOCAL_RANK": "1", "RANK": "3", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert placed("auto", tensor_parallel=True) == Placement(device=gpus[1], ranks=4)


@pytest.mark.parametrize("bits", [4, 8])
def test_few_bits_are_asked_of_transformers_own_config(bits, saved, monkeypatch):
    given = {}

    def refuse(*arguments: Any, **options: Any) -> None:
        given.update(options)
        raise OSError("stop here")

    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", refuse)
    assert "stop here" in sentence(ModelSpec(id=saved, bits=bits), device="cpu", dtype="bfloat16")
    config = given["quantization_config"]
    assert isinstance(config, transformers.BitsAndBytesConfig)
    assert (config.load_in_4bit, config.load_in_8bit) == (bits == 4, bits == 8)
    assert given["device_map"] == {"": torch.device("cpu")}, "quantised weights cannot be moved later"
    if bits == 4:
        assert (config.bnb_4bit_quant_type, config.bnb_4bit_compute_dtype) == ("nf4", torch.bfloat16)


def test_few_bits_where_there_can_be_none(saved, monkeypatch):
    assert "bits is 4, 8 or null (not quantised), not 3" in sentence(ModelSpec(id=saved, bits=3))
    assert "bits=4 goes with device_map, not with offload" in sentence(ModelSpec(id=saved, bits=4, offload=True))
    own = ModelSpec(id=saved, kind="layer_skip", bits=8)
    assert "not for a draft of kind layer_skip" in sentence(saved, own)
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name: None)
    assert "bits=8 needs bitsandbytes and a CUDA device: pip install bitsandbytes" in sentence(
        saved, ModelSpec(id=saved, bits=8)
    )


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub that has not been tried yet, without proxies."""
    for name in ("http", "https", "all"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(fetch.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fetch, "_hub", fetch._Hub())


REFUSALS = {
    "no such name": socket.gaierror(-2, "Name or service not known"),
    "refused": ExceptionGroup("", [ConnectionRefusedError(111, "refused"), OSError(101, "unreachable")]),
}


@pytest.mark.parametrize("error", REFUSALS.values(), ids=REFUSALS)
def test_a_hub_that_refuses_is_asked_twice_and_then_once_with_every_model(error, hub, monkeypatch):
    asked = []

    def connect(address: tuple[str, int], *options: Any, **named: Any) -> None:
        asked.append(address)
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    for _ in range(2):
        assert "org/model is not on this machine" in sentence("org/model", device="cpu")
    assert constants.HF_HUB_OFFLINE
    assert asked == [("huggingface.co", 443)] * 3
    monkeypatch.setattr(socket, "create_connection", lambda *options, **named: socket.socket())
    fetch.work_offline_if_refused()
    assert not constants.HF_HUB_OFFLINE


@pytest.mark.usefixtures("hub")
def test_a_process_that_was_told_to_stay_offline_does(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket, "create_connection", lambda *options, **named: pytest.fail("asked"))
    fetch.work_offline_if_refused()
    assert constants.HF_HUB_OFFLINE


@pytest.mark.parametrize("way", ["answers", "is slow", "answers the second time", "is behind a proxy"])
def test_a_hub_that_may_be_there_is_left_to_its_client(way, hub, monkeypatch):
    answers = [ConnectionRefusedError(111, "refused")] if way == "answers the second time" else []

    def connect(*options: Any, **named: Any) -> socket.socket:
        assert way != "is behind a proxy"
        if way == "is slow":
            raise ExceptionGroup("", [OSError(101, "unreachable"), TimeoutError()])
        if answers:
            raise answers.pop()
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    if way == "is behind a proxy":
        monkeypatch.setenv("https_proxy", "http://proxy:3128")
    fetch.work_offline_if_refused()
    assert not constants.HF_HUB_OFFLINE


RANK = """
import json, sys
from test_placement import outputs
from specdec_core import load_pair
from specdec_core.models import ModelSpec, ranks
folder, out, *drafts = sys.argv[1:]
found = []
for draft in drafts:
    draft = json.loads(draft)
    draft["skipped_layers"] = tuple(draft.pop("skipped_layers", ()))
    pair = load_pair(folder, ModelSpec(**draft), tensor_parallel=True, dtype="float32")
    found.append(outputs(pair))
weight = pair.target.model.get_decoder().layers[0].self_attn.k_proj.weight
shares = [pair.target.cache.layers[0].keys.shape[1], weight.to_local().shape[0]]
answers = [ranks.agreed(lambda: ranks.rank() + 5), ranks.world_size(), pair.target.vocab_size]
try:
    ranks.agreed(lambda: 1 / 0)
except ZeroDivisionError as error:
    answers.append(str(error))
open(f"{out}/{ranks.rank()}.json", "w").write(json.dumps([found, shares, answers]))
"""


def torchrun(*arguments: str) -> None:
    """Two processes on this machine."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *arguments]
    folders = (Path(__file__).parent, Path(__file__).parents[2], Path(__file__).parents[3])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(map(str, folders))}
    done = subprocess.run(launch, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.long
def test_two_ranks_give_the_tokens_of_one_process(saved, tmp_path):
    """With a draft of its own, the target as its own draft, and a head that reads the target's embedding and output."""
    drafts = [
        {"id": saved},
        {"id": saved, "kind": "layer_skip", "skipped_layers": (1,)},
        {"id": str(eagle_head(tmp_path / "head", own_embedding=False)), "kind": "eagle"},
    ]
    (tmp_path / "rank.py").write_text(RANK)
    torchrun(str(tmp_path / "rank.py"), saved, str(tmp_path), *map(json.dumps, drafts))
    pairs = [load_pair(saved, ModelSpec(**draft), device="cpu", dtype="float32") for draft in drafts]
    expected = [outputs(pair) for pair in pairs]
    for rank in range(2):
        found, shares, answers = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found == expected
        assert shares == [1, 8], "half of the two key/value heads"
        assert answers == [5, 2, 20, "division by zero"]
