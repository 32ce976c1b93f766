"""What a node of a token graph costs as the graph grows: `python -m bench.graph_build` (make bench-graph-build).

The embedded draft model drafts graphs of a given number of records, nothing pruned, so that all of them are reached.
Growing (classes, tau-grams, merge edges, cycles) and unmerging are then done once more on what the draft said, without
it. The cost of a record is to stay as it is, however large the graph.
"""

import argparse
import statistics
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Generator, Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.embedded import TINY
from specdec_core.drafters import Context, TokenGraph
from specdec_core.drafters.graph_growth import GraphGrowth
from specdec_core.drafters.unmerging import unmerge
from specdec_core.graph import Kind
from specdec_core.models import CausalLM, ModelOutput
from specdec_core.timing import Clock

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


@dataclass(slots=True)
class Costs:
    """Microseconds per record, of every repeat."""

    total: list[float] = field(default_factory=list)
    forwards: list[float] = field(default_factory=list)
    growing: list[float] = field(default_factory=list)
    unmerging: list[float] = field(default_factory=list)


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
    print(
        f"{'tau':>4} {'records':>8} {'read':>6} {'merged':>7} {'total':>7} {'forwards':>9} {'growing':>8} {'unmerging':>10}"
    )
    for tau in TAUS:
        for size in args.sizes:
            drafter = Recorded(draft=draft, k=4, tau=tau, theta_prob=0, theta_sib=0, max_steps=64, draft_node_cap=size)
            print(f"{tau or 'none':>4} {measured(drafter, prompt, args.repeats)}")


@torch.inference_mode()
def measured(drafter: Recorded, prompt: list[int], repeats: int) -> str:
    """A row: how large the graph became, and its costs."""
    ids, costs = torch.tensor(prompt), Costs()
    drafter.reset(ids[:-1], ModelOutput(torch.zeros(0, drafter.draft.vocab_size)))
    for _ in range(repeats + 1):
        drafter.candidates, clock = [], Clock(ids.device)
        clock.next_step()
        with clock.span("grow"):
            graph = drafter.grow(Context(prompt, torch.Generator(), clock)).graph
        assert graph is not None
        tally, records = clock.read()[0], len(graph.tokens) - 1
        growing, unmerging = replayed(drafter, prompt[-1])
        for column, seconds in (
            (costs.total, tally["grow"].seconds),
            (costs.forwards, tally["draft"].seconds),
            (costs.growing, growing),
            (costs.unmerging, unmerging),
        ):
            column.append(1e6 * seconds / records)
    total, forwards, growing, unmerging = (
        statistics.median(column[1:]) for column in (costs.total, costs.forwards, costs.growing, costs.unmerging)
    )
    read, merged = tally["draft"].tokens, graph.count(Kind.ALIAS)
    return f"{records:>8} {read:>6} {merged:>7} {total:>7.1f} {forwards:>9.1f} {growing:>8.1f} {unmerging:>10.2f}"


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
