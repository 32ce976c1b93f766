"""Shapes and types of specdec_core are checked at every call of a third of its own tests, with `--all` of every test.

`--all` also runs the long forms and every case of a test (`make test-all`). Models that tests share are made once.
"""

import gc
import os
import zlib
from collections import defaultdict
from pathlib import Path

import checker  # noqa: F401
import torch
from jaxtyping import config as shape_checks
from jaxtyping import install_import_hook
from transformers import AutoModelForCausalLM, AutoTokenizer, BloomForCausalLM, LlamaForCausalLM  # noqa: F401

with install_import_hook("specdec_core", "checker.check"):
    import specdec_core
    import specdec_core.drafters
    import specdec_core.verifiers  # noqa: F401

import pytest
from doubles import random_llama

from specdec_core import CausalLM, load_pair
from specdec_core.models import Pair
from specdec_trees.measure import measurement
from specdec_trees.measure.stalls import Stalls
from specdec_trees.prompts.embedded import TINY

CORE = Path(__file__).parent / "unit" / "core"
_OF_MAKE = "MAKEFLAGS MFLAGS MAKEOVERRIDES ARGS PAIR TABLE EXPERIMENT DATA_DIR DATASET LIMIT MAX_NEW_TOKENS RESULTS"
for name in _OF_MAKE.split():  # tests that run make have their own
    os.environ.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="long forms too, and shapes checked in every test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--all"):
        long = {item for item in items if item.get_closest_marker("long")} | beyond_few(items)
        config.hook.pytest_deselected(items=list(long))
        items[:] = [item for item in items if item not in long]


def beyond_few(items: list[pytest.Item]) -> set[pytest.Item]:
    """The cases that the short form leaves out: of a test marked `few(n)` it has n, evenly spread."""
    tests: dict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("few"):
            tests[item.path, item.nodeid.partition("[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for cases in tests.values():
        n = cases[0].get_closest_marker("few").args[0]
        spread = {place * len(cases) // n for place in range(n)}
        left_out |= {case for place, case in enumerate(cases) if place not in spread}
    return left_out


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected stays until the end: looking through it for garbage takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def pytest_sessionfinish(session: pytest.Session) -> None:
    gc.unfreeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    sampled = CORE in item.path.parents and zlib.crc32(item.nodeid.encode()) % 3 == 0
    checked = item.config.getoption("--all") or sampled
    shape_checks.update("jaxtyping_disable", not checked)


@pytest.fixture(scope="session")
def long_form(request: pytest.FixtureRequest) -> bool:
    """Whether a test shall take its time: more draws, every case (`make test-all`)."""
    return bool(request.config.getoption("--all"))


@pytest.fixture(autouse=True, scope="session")
def _threads() -> None:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


class Undisturbed(Stalls):
    """Turns of a machine that holds none up."""

    def stalled(self, *_: object) -> bool:
        return False


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What else runs on this machine marks no turn as held up, and has none decoded again."""
    monkeypatch.setattr(measurement, "Stalls", Undisturbed)


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
