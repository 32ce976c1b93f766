"""Shapes and types of specdec_core are checked at every call made by a test; models that tests share are made once."""

import os

from jaxtyping import install_import_hook

with install_import_hook("specdec_core", "checker.check"):
    import specdec_core
    import specdec_core.drafters
    import specdec_core.verifiers  # noqa: F401

import pytest
import torch
from doubles import random_llama

from bench.prompts.embedded import TINY
from specdec_core import CausalLM, load_pair
from specdec_core.models import Pair


@pytest.fixture(autouse=True, scope="session")
def _threads() -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


@pytest.fixture(scope="session")
def tiny() -> Pair:
    """The embedded pair on the CPU."""
    return load_pair(str(TINY / "target"), str(TINY / "draft"), device="cpu")


@pytest.fixture(scope="session")
def toy_target() -> CausalLM:
    return random_llama(0)


@pytest.fixture(scope="session")
def toy_draft() -> CausalLM:
    return random_llama(1, layers=1)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)
