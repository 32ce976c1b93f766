"""Compiled forwards on a GPU: widths that follow the text, what is captured and when, and the word for how they ran.

A backend that runs what was traced stands in for inductor: it captures nothing, and says that a graph is replayed.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from jaxtyping import config as shape_checks

from specdec_core import generate, load_pair
from specdec_core.drafters import Autoregressive, Drafter, OptTree
from specdec_core.models import ModelSpec, Pair, graphs
from specdec_core.models.graphs import coarse, widths
from specdec_core.verifiers import Greedy
from specdec_trees.prompts.embedded import TINY

pytestmark = pytest.mark.fake_gpu
DRAFTS = (
    ModelSpec(id=str(TINY / "draft")),
    ModelSpec(id=str(TINY / "eagle"), kind="eagle"),
    ModelSpec(id=str(TINY / "target"), kind="layer_skip", skipped_layers=(1, 2)),
)


class Inductor:
    """What was compiled, and how often each ran over masks of each width; `replays` says whether in CUDA graphs."""

    def __init__(self) -> None:
        self.compiled = 0
        self.ran: Counter[tuple[int, int, int]] = Counter()
        self.replays: Callable[[int], bool] = lambda width: True
        self.fails = False

    def look(self, ran: list[set[tuple[int, int, int]]], *step: Any) -> None:
        """Note what has run up to a step."""
        ran.append({*self.ran})

    def __call__(self, module: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        if self.fails:
            raise RuntimeError("no compiler")
        self.compiled += 1
        number = self.compiled

        def run(*inputs: Any) -> Any:
            mask = next(one for one in inputs if torch.is_tensor(one) and one.is_floating_point() and one.dim() == 4)
            rows, width = mask.shape[2:]
            self.ran[number, rows, width] += 1
            if self.replays(width):
                torch.cuda.CUDAGraph.replay(None)  # type: ignore[arg-type]
            return module(*inputs)

        return run


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch):
    shape_checks.update("jaxtyping_disable", True)  # checks of shapes are no part of a graph
    backend = Inductor()
    monkeypatch.setattr(graphs, "_options", lambda device: {"backend": backend})
    monkeypatch.setattr(graphs, "_replay", lambda graph: None)
    monkeypatch.setattr(graphs, "_CALLS", {"cuda": 1})
    yield backend
    torch._dynamo.reset()


def loaded(draft: ModelSpec | None = None, how: str = "compile") -> Pair:
    return load_pair(str(TINY / "target"), draft, device="cuda", dtype="float32", graphs=how)


def decoded(pair: Pair, drafter: Callable[[Any], Drafter], prompt: int = 6, new: int = 40, **options: Any) -> list[int]:
    ids = pair.tokenizer("def read_file(path):\n" * 200)["input_ids"][:prompt]
    return generate(pair.target, drafter(pair.draft), Greedy(), ids, max_new_tokens=new, **options).tokens


def plain(_: Any) -> Drafter:
    return Autoregressive()


def opt_tree(draft: Any) -> Drafter:
    return OptTree(draft=draft, n=12, delta=0.2)


@pytest.mark.parametrize("slots", [1, 128, 129, 1024, 1025, 2573, 4096, 4097, 131072])
def test_a_width_is_less_than_a_quarter_above_what_is_used(slots):
    assert slots <= coarse(slots) <= max(1.25 * slots, slots + 127)
    assert coarse(slots) % 128 == 0
    assert coarse(coarse(slots)) == coarse(slots)


@pytest.mark.parametrize(("capacity", "number"), [(1025, 8), (2561, 13), (4097, 16), (8193, 20)])
def test_a_doubling_of_the_text_has_four_widths(capacity, number):
    found = [*widths(capacity)]
    assert len(found) == number
    assert found == sorted({coarse(slots) for slots in range(1, capacity)})


@pytest.mark.parametrize("draft", DRAFTS, ids=lambda spec: spec.kind)
def test_all_widths_are_captured_before_a_text_begins(inductor, draft, monkeypatch):
    eager, pair = loaded(draft, "eager"), loaded(draft)
    monkeypatch.setattr(graphs, "_NARROW", 512)  # fewer widths, in less time
    decoded(pair, opt_tree, new=8)
    compiled, capacities = inductor.compiled, []
    for prompt in (500, 1000):  # both texts go on into another width, and the second cache is larger
        ran: list[set[tuple[int, int, int]]] = []
        with pair.sealed():
            watch = partial(inductor.look, ran)
            tokens = decoded(pair, opt_tree, prompt=prompt, watch=watch)
            assert pair.mode == "compile"
        assert tokens == decoded(eager, opt_tree, prompt=prompt)
        assert all(one == ran[0] for one in ran), "nothing is captured while it decodes"
        capacities.append(pair.target.cache.capacity)
        assert capacities[-1] < 1.25 * (prompt + 40 + 1024) + 512, "near what is needed"
    assert capacities[0] < capacities[1]
    assert inductor.compiled == compiled == sum(len(one._sizes) for one in pair.graphs)
    for number, rows in {(number, rows) for number, rows, _ in inductor.ran}:
        ran_in = {width for at, of, width in inductor.ran if (at, of) == (number, rows)}
        assert ran_in == {*widths(max(ran_in) + 1)}, "no other width than these"


def test_buffers_have_static_addresses_also_after_they_have_grown(inductor):
    pair = loaded()
    capacities = set()
    for prompt in (6, 400):
        decoded(pair, plain, prompt=prompt, new=4)
        buffers = [buffer for layer in pair.target.cache.layers for buffer in (layer.keys, layer.values)]
        assert {buffer._dynamo_static_input_type for buffer in buffers} == {"unguarded"}
        capacities.add(pair.target.cache.capacity)
    assert len(capacities) == 2


@pytest.mark.parametrize(("narrowest", "mode"), [(1, "compile"), (200, "uncaptured"), (4096, "uncaptured")])
def test_forwards_that_no_graph_was_replayed_for_are_told(inductor, narrowest, mode, recwarn):
    inductor.replays = lambda width: width >= narrowest
    pair = loaded()
    decoded(pair, plain, new=8)
    skipped = [str(one.message) for one in recwarn if "skipped CUDA graphs" in str(one.message)]
    assert bool(skipped) == (narrowest > 2000)
    with pair.sealed():
        assert pair.mode is None
        decoded(pair, plain)
        assert pair.mode == mode
        pair.graphs[0].missed += 1
        assert pair.mode == ("mixed" if mode == "compile" else mode)


def test_what_cannot_be_compiled_runs_eagerly_and_says_so_once(inductor):
    expected, pair = decoded(loaded(how="eager"), plain), loaded(how="auto")
    inductor.fails = True
    with pytest.warns(UserWarning, match="llama cannot be compiled, and runs eagerly") as warned:
        assert decoded(pair, plain) == expected
    assert len(warned) == 1
    with pair.sealed():
        assert decoded(pair, plain, prompt=400)
        assert pair.mode == "eager"
