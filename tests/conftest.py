"""Shapes and types of specdec_core are checked at every call made by a test; models that tests share are made once."""

from jaxtyping import install_import_hook

with install_import_hook("specdec_core", "checker.check"):
    import specdec_core
    import specdec_core.drafters
    import specdec_core.verifiers  # noqa: F401

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bench.run import TINY
from specdec_core import CausalLM, load_pair
from specdec_core.models import Pair


@pytest.fixture(autouse=True, scope="session")
def _two_threads() -> None:
    torch.set_num_threads(2)


@pytest.fixture(scope="session")
def tiny() -> Pair:
    """The embedded pair on the CPU."""
    return load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu")


def random_llama(seed: int, *, vocab: int = 61, layers: int = 2, positions: int = 256) -> CausalLM:
    """A small Llama with random weights, sharp enough that arg maxima are not ties."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        initializer_range=0.4,
    )
    return CausalLM(LlamaForCausalLM(config))


@pytest.fixture(scope="session")
def toy_target() -> CausalLM:
    return random_llama(0)


@pytest.fixture(scope="session")
def toy_draft() -> CausalLM:
    return random_llama(1, layers=1)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)
