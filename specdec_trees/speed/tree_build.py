"""`python -m specdec_trees.speed.tree_build` (make bench-tree-build): building a tree beside the draft's forwards.

Draft distributions are rows of a bank over 32,000 tokens (a power law of the rank, ranks shuffled), so that no model
runs. Every drafter turns logits into distributions, picks or draws children and chooses nodes. DySpec's choice, on the
host, is measured too: in place, where softmax and race over the vocabulary have emptied the caches between its layers,
and `alone`, the same draws chosen among once more, as where a GPU does the rest.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from specdec_core.drafters import Context, Drafter, DySpec, Eagle2, OptTree, Sequoia
from specdec_core.drafters.sites import Sites
from specdec_core.models import ModelOutput
from specdec_core.models.causal_lm import Layers
from specdec_core.timing import Clock
from specdec_core.tree import Verdict

SIZES = (16, 32, 64, 128, 256, 512, 768, 1024)
VOCABULARY, ROWS = 32_000, 64
STEP_MS = 25.0
"""A step of LLaMA-2-7B as the papers have it (float16, A100)."""


class Bank:
    """A draft model without a model: each node's logits are the next row of a bank."""

    needs_hidden: Layers = ()
    max_depth: int | None = None
    max_positions: int | None = None
    vocab_size = VOCABULARY
    device = torch.device("cpu")

    def __init__(self, exponent: float) -> None:
        rng = torch.Generator().manual_seed(0)
        ranks = torch.stack([torch.randperm(VOCABULARY, generator=rng) for _ in range(ROWS)])
        self._logits, self.read, self.forwards = -exponent * (ranks + 1.0).log(), 0, 0

    def reset(self, prompt_ids: Tensor, target: ModelOutput) -> None:
        """Nothing to read."""

    def begin(self, context: Context) -> ModelOutput:
        """The root's row."""
        return self._next(1)

    def begin_below(self, context: Context, tokens: Tensor) -> ModelOutput:
        """A row per node; the root's is skipped."""
        return self._next(tokens.shape[0])

    def expand(self, tokens: Tensor, parents: Tensor) -> ModelOutput:
        """A row per node."""
        return self._next(tokens.shape[0])

    def commit(self, slots: Tensor, verdict: Verdict, target: ModelOutput) -> None:
        """Nothing to keep."""

    def _next(self, count: int) -> ModelOutput:
        rows = (self.read + torch.arange(count)) % ROWS
        self.read, self.forwards = self.read + count, self.forwards + 1
        return ModelOutput(self._logits[rows])


class TimedSites(Sites):
    """Sites that remember what choosing among them took, and the draws, to choose among them once more."""

    seconds = 0.0
    draws: ClassVar[list[tuple[Any, Any]]] = []


def _timed(name: str) -> Callable[..., object]:
    method = getattr(Sites, name)

    def run(self: TimedSites, *arguments: object, **options: object) -> object:
        start = time.perf_counter()
        try:
            return method(self, *arguments, **options)
        finally:
            TimedSites.seconds += time.perf_counter() - start
            if name == "add":
                TimedSites.draws.append((arguments[0], arguments[1]))

    return run


for _name in ("__init__", "values", "wants_more", "add", "chosen"):
    setattr(TimedSites, _name, _timed(_name))


def replayed(n: int, max_depth: int) -> float:
    """Seconds of the last tree's choice alone, nothing the size of a vocabulary between its layers."""
    start = time.perf_counter()
    sites = Sites(0, n, max_depth=max_depth)
    for tokens, edges in TimedSites.draws:
        sites.add(tokens, edges, sites.values(edges))
    sites.chosen()
    return time.perf_counter() - start


class TimedDySpec(DySpec):
    """DySpec whose selection is timed."""

    def _sites(self, root: int) -> Sites:
        return TimedSites(root, self.n, max_depth=self.max_depth)


def drafters(bank: Bank, n: int) -> dict[str, Drafter]:
    """The four at one size. Sequoia's vector falls as a power law; EAGLE-2 has beams of 10 over 6 layers."""
    vector = [0.6 * k**-1.5 / 2.0 for k in range(1, 33)]
    found: dict[str, Drafter] = {
        "OPT-Tree": OptTree(draft=bank, n=n, delta=0.05),
        "Sequoia": Sequoia(draft=bank, acceptance=vector, n=n, depth=12),
        "DySpec": TimedDySpec(draft=bank, n=n, draft_temperature=1.0),
    }
    if n <= 10 + 5 * 100:  # all that it drafts
        found["EAGLE-2"] = Eagle2(draft=bank, total=n + 1, depth=5, k=10)
    return found


def measure(drafter: Drafter, bank: Bank, repeats: int) -> dict[str, float]:
    """Medians over trees: milliseconds of all and of the choice, draft forwards, nodes read."""
    context = Context([1], torch.Generator().manual_seed(0), Clock(bank.device))
    rows: dict[str, list[float]] = {"ms": [], "in place": [], "alone": [], "forwards": [], "read": []}
    for _ in range(repeats + 2):
        before, TimedSites.seconds, TimedSites.draws = (bank.forwards, bank.read), 0.0, []
        start = time.perf_counter()
        drafter.grow(context)
        seconds = time.perf_counter() - start
        again = replayed(drafter.n, drafter.max_depth) if isinstance(drafter, TimedDySpec) else 0.0
        counts = bank.forwards - before[0], bank.read - before[1]
        values = (1e3 * seconds, 1e3 * TimedSites.seconds, 1e3 * again, *counts)
        for name, value in zip(rows, values, strict=True):
            rows[name].append(value)
    return {name: statistics.median(values[2:]) for name, values in rows.items()}


@torch.inference_mode()
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=15, help="trees per size")
    parser.add_argument("--exponent", type=float, default=2.0, help="of the draft's distribution: q ~ rank^-exponent")
    args = parser.parse_args()
    if min(*args.sizes, args.repeats) < 1:
        parser.error("--sizes and --repeats are whole numbers from 1 on")
    torch.set_num_threads(1)
    print(f"One tree in microseconds, {VOCABULARY} tokens, q ~ rank^-{args.exponent:g}, one thread, no forwards")
    columns = ("OPT-Tree", "EAGLE-2", "Sequoia", "DySpec")
    header = " ".join(f"{name:>10}" for name in columns)
    print(f"{'':>50} {'selection in DySpec':>31}")
    print(f"{'n':>6} {header} {'in place':>9} {'alone':>7} {'per node':>9} {'of 25 ms':>9} {'forwards':>9} {'read':>6}")
    for n in args.sizes:
        bank = Bank(args.exponent)
        found = {name: measure(drafter, bank, args.repeats) for name, drafter in drafters(bank, n).items()}
        times = " ".join(f"{1e3 * found[name]['ms']:>10.0f}" if name in found else f"{'-':>10}" for name in columns)
        ours = found["DySpec"]
        place, alone = 1e3 * ours["in place"], 1e3 * ours["alone"]
        print(
            f"{n:>6} {times} {place:>9.0f} {alone:>7.0f} {alone / n:>9.2f} {1e-3 * alone / STEP_MS:>9.1%} "
            f"{ours['forwards']:>9.0f} {ours['read']:>6.0f}"
        )


if __name__ == "__main__":
    main()
