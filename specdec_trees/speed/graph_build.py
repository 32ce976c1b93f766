"""`python -m specdec_trees.speed.graph_build` (make bench-graph-build): what a node of a token graph costs as it grows.

The embedded draft model drafts graphs of a given number of records, nothing pruned, so that all of them are reached.
Growing (classes, tau-grams, merge edges, cycles) and unmerging are then done once more on what the draft said, without
it. The cost of a record is to stay as it is, however large the graph.
"""

import argparse
import statistics
import time
from typing import Any

import torch
from torch import Generator, Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdec_core.drafters import Context, TokenGraph
from specdec_core.drafters.graph_growth import GraphGrowth
from specdec_core.drafters.unmerging import unmerge
from specdec_core.graph import DraftGraph, Kind
from specdec_core.models import CausalLM, ModelOutput
from specdec_core.timing import Clock, Tally
from specdec_trees.prompts.embedded import TINY

SIZES = (100, 1000, 5000)
TAUS = (1, 2, 3, None)
PROMPT = 'def read_lines(path):\n    """The lines of a text file, without line ends."""\n    with open(path) as file:\n'
"""Written for this measurement."""


class Recorded(TokenGraph):
    """A token graph that remembers the candidates of the last step."""

    candidates: list[tuple[Any, Any]]

    def _candidates(self, q: Tensor, rng: Generator) -> tuple[Any, Any]:
        found = super()._candidates(q, rng)
        self.candidates.append(found)
        return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="records")
    parser.add_argument("--repeats", type=int, default=9, help="graphs per row")
    args = parser.parse_args()
    torch.set_num_threads(1)
    draft = CausalLM(AutoModelForCausalLM.from_pretrained(TINY / "draft", dtype=torch.float32))
    prompt = AutoTokenizer.from_pretrained(TINY / "draft")(PROMPT)["input_ids"]
    print("Microseconds per record (k = 4, nothing pruned, embedded draft, one thread); medians of", args.repeats)
    columns = ("records", "read", "merged", "total", "forwards", "growing")
    print(" tau", *(f"{name:>8}" for name in columns), " unmerging")
    for tau in TAUS:
        for size in args.sizes:
            drafter = Recorded(draft=draft, k=4, tau=tau, theta_prob=0, theta_sib=0, max_steps=64, draft_node_cap=size)
            print(f"{tau or 'none':>4} {measured(drafter, prompt, args.repeats)}")


@torch.inference_mode()
def measured(drafter: Recorded, prompt: list[int], repeats: int) -> str:
    """A row: how large the graph became, and microseconds per record, medians over graphs."""
    drafter.reset(torch.tensor(prompt[:-1]), ModelOutput(torch.zeros(0, drafter.draft.vocab_size)))
    found = [drafted(drafter, prompt) for _ in range(repeats + 1)][1:]
    graph, tally, _ = found[-1]
    sizes = len(graph.tokens) - 1, tally["draft"].tokens, graph.count(Kind.ALIAS)
    seconds = [(times["grow"].seconds, times["draft"].seconds, *again) for _, times, again in found]
    costs = (1e6 * statistics.median(column) / sizes[0] for column in zip(*seconds, strict=True))
    return "{:>8} {:>8} {:>8} {:>8.1f} {:>8.1f} {:>8.1f} {:>10.2f}".format(*sizes, *costs)


def drafted(drafter: Recorded, prompt: list[int]) -> tuple[DraftGraph, dict[str, Tally], tuple[float, float]]:
    """A graph, what it took, and what growing and unmerging take alone."""
    drafter.candidates, clock = [], Clock(torch.device("cpu"))
    clock.next_step()
    with clock.span("grow"):
        graph = drafter.grow(Context(prompt, torch.Generator(), clock)).origin
    assert isinstance(graph, DraftGraph)
    return graph, clock.read()[0], replayed(drafter, prompt[-1])


def replayed(drafter: Recorded, root: int) -> tuple[float, float]:
    """Seconds of growing and of unmerging the last graph, the draft's candidates given."""
    start = time.perf_counter()
    growth = GraphGrowth(root, drafter.rules)
    for tokens, probs in drafter.candidates:
        growth.add(tokens, probs)
    _, parents, probs, _, merged_into = growth.records
    middle = time.perf_counter()
    unmerge(parents, probs, merged_into, cap=drafter.verify_cap, depth=drafter.unmerge_depth)
    return middle - start, time.perf_counter() - middle


if __name__ == "__main__":
    main()
