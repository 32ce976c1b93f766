"""How long attention over a random tree takes, by kernel and node order, and the blocks it reads (DySpec, Table 5).

A tree is a uniform random recursive one: the parent of node i is uniform among the nodes before it.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from tqdm import tqdm

from specdec_core.layout import tree_layout
from specdec_core.models import tree_attention
from specdec_core.models.tree_attention import BLOCKS
from specdec_core.node_order import NODE_ORDERS, block_count, node_order, reordered
from specdec_core.timing import Clock
from specdec_core.tree import TokenTree
from specdec_trees.calibrate import attention_kernels
from specdec_trees.calibrate.attention_kernels import KERNELS, SDPA, Kernel, Problem, runnable
from specdec_trees.measure.provenance import collect
from specdec_trees.names import unknown
from specdec_trees.results.kept_rows import AttentionRow
from specdec_trees.results.store import run_id

_CACHE = 2**28
"""Bytes, more than any GPU's second level of cache holds."""


@dataclass(frozen=True, kw_only=True)
class AttentionGrid:
    """Which attentions are timed; a batch of one."""

    num_tokens: list[int] = field(default_factory=lambda: [256, 512, 1024, 2048])
    """Nodes of a tree, root included."""
    num_prefix: int = 0
    heads: int = 64
    kv_heads: int = 64
    head_dim: int = 128
    block: int = 32
    trees: int = 5
    orders: list[str] = field(default_factory=lambda: ["creation", "dfs"])
    kernels: list[str] = field(default_factory=lambda: list(KERNELS))
    """Those that need a GPU are left out without one."""
    warmup: int = 10
    repeats: int = 100
    budget_s: float = 0.25
    """For the runs behind one median, and for the warm-up of a kernel and size; each is at least one run."""
    seed: int = 0

    def __post_init__(self) -> None:
        for kind, names, known in (("kernel", self.kernels, KERNELS), ("order", self.orders, NODE_ORDERS)):
            for name in names:
                if name not in known:
                    raise ValueError(unknown(f"attention.{kind}", name, known))
        for name in ("num_tokens", "trees", "heads", "kv_heads", "head_dim", "repeats", "orders", "kernels"):
            value = getattr(self, name)
            if not value or (name not in ("orders", "kernels") and min(value if name == "num_tokens" else [value]) < 1):
                raise ValueError(f"attention.{name} has to be at least one")
        if self.block not in BLOCKS:
            raise ValueError(f"attention.block is one of {', '.join(map(str, BLOCKS))}, not {self.block}")
        if self.heads % self.kv_heads:
            raise ValueError(f"attention.heads={self.heads} is no multiple of attention.kv_heads={self.kv_heads}")


def key(grid: AttentionGrid, device: torch.device, dtype: torch.dtype) -> str:
    """What tells these times from others: grid, device, dtype, threads, and what computes them."""
    versions = {"torch": str(torch.__version__), "triton": version("triton") if find_spec("triton") else None}
    sources = sorted([*Path(tree_attention.__file__).parent.glob("*.py"), Path(attention_kernels.__file__)])
    kernels = sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    identity = {"attention": asdict(grid), **_origin(device, dtype), "num_threads": torch.get_num_threads()}
    return run_id(identity | {"versions": versions, "kernels": kernels})


@torch.inference_mode()
def rows(
    run_id: str, grid: AttentionGrid, device: torch.device, dtype: torch.dtype, *, progress: bool = False
) -> list[AttentionRow]:
    """A row for every kernel, size, tree and order: the median time of a run, and of what is done once for a mask."""
    found = []
    kernels = [name for name in grid.kernels if runnable(name, device)]
    if not kernels:
        raise ValueError(f"{', '.join(grid.kernels)} is timed on a GPU alone; add sdpa or manual to attention.kernels")
    for nodes in tqdm(grid.num_tokens, desc="attention", unit="size", disable=not progress):
        inputs, warmed = _inputs(grid, nodes, device, dtype), set()
        for tree, order, blocks, mask in _masks(grid, nodes, dtype):
            problem = replace(inputs, mask=mask.to(device))
            for name in kernels:
                if name not in warmed:
                    warmed.add(name)
                    _times(KERNELS[name], problem, grid.warmup, grid.budget_s)
                prepare_s, seconds = _times(KERNELS[name], problem, grid.repeats, grid.budget_s)
                row = AttentionRow(
                    run_id=run_id,
                    **_origin(device, dtype),
                    kernel=name,
                    num_nodes=nodes,
                    **blocks,
                    **{column: getattr(grid, column) for column in ("num_prefix", "heads", "kv_heads", "head_dim")},
                    order=order,
                    block=grid.block,
                    tree=tree,
                    repeats=len(seconds),
                    prepare_s=prepare_s,
                    forward_s=statistics.median(seconds),
                )
                found.append(row)
    return found


def random_tree(nodes: int, seed: int) -> TokenTree:
    """A uniform random recursive tree; its tokens and probabilities mean nothing."""
    index, rng = torch.arange(nodes), torch.Generator().manual_seed(seed)
    parents = (torch.rand(nodes, generator=rng, dtype=torch.float64) * index).long()
    parents[0] = -1
    return TokenTree(torch.zeros_like(index), parents, torch.ones(nodes))


def _masks(grid: AttentionGrid, nodes: int, dtype: torch.dtype) -> Iterator[tuple[int, str, dict[str, Any], Tensor]]:
    """Every tree in every order: its number, the order, its blocks, its mask."""
    for number in range(grid.trees):
        tree = random_tree(nodes, grid.seed + number)
        for order in grid.orders:
            ordered = reordered(tree, node_order(tree, order))
            visible, prefix = ordered.ancestor_mask, grid.num_prefix
            mask = tree_layout(visible, ordered.depths, prefix=prefix, dtype=dtype).mask
            blocks = {
                "num_blocks": int(block_count(visible, grid.block, prefix)),
                "num_tree_blocks": int(block_count(visible, grid.block)),
            }
            yield number, order, blocks, torch.zeros(1, 1, 1, prefix + 1, dtype=dtype) if mask is None else mask


def _inputs(grid: AttentionGrid, nodes: int, device: torch.device, dtype: torch.dtype) -> Problem:
    """Unit normals; the mask is to come."""
    rng = torch.Generator(device).manual_seed(grid.seed)
    slots = grid.num_prefix + nodes

    def normal(heads: int, tokens: int) -> Float[Tensor, "1 heads tokens dim"]:
        return torch.randn(1, heads, tokens, grid.head_dim, generator=rng, device=device).to(dtype)

    stored = normal(grid.kv_heads, slots), normal(grid.kv_heads, slots)
    return Problem(normal(grid.heads, nodes), *stored, torch.empty(1, 1, nodes, slots), grid.block)


def _times(kernel: Kernel, problem: Problem, repeats: int, budget_s: float) -> tuple[float, list[float]]:
    """Seconds of the work for the mask, and of each of at most so many runs: as many as fit into the budget, or one."""
    clock = Clock(problem.query.device)
    with clock.span("prepare"):
        run = kernel(problem)
    (once,) = _queued(run, 1, clock.device)
    count = min(repeats, int(budget_s / once))
    clock.read()
    return clock.spans[0].seconds(), _queued(run, count, clock.device) if count > 1 else [once]


def _queued(run: Callable[[], Tensor], count: int, device: torch.device) -> list[float]:
    """Seconds of runs one after another. On a GPU each begins with a cold cache, and behind work that takes longer than
    launching it: what is measured is the device's time, whatever the host's.
    """
    clock, flushed = Clock(device), torch.empty(_CACHE if device.type == "cuda" else 0, dtype=torch.int8, device=device)
    for _ in range(count):
        flushed.zero_()
        with clock.span("run"):
            run()
    clock.read()
    return [span.seconds() for span in clock.spans]


def _origin(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    kind = str(dtype).removeprefix("torch.")
    facts = collect(str(device), kind, "")
    return {name: facts[name] for name in ("device_name", "dtype", "torch_version")}


def summary(rows: Sequence[AttentionRow], grid: AttentionGrid) -> str:
    """A line for every size, order and kernel: mean over the trees of time, ratio to SDPA's, and blocks."""
    first = rows[0]
    lines = [
        f"attention over {grid.trees} random trees on {first.device_name}, {first.dtype}: {grid.heads} heads of "
        f"{grid.head_dim}, {grid.kv_heads} of keys, {grid.num_prefix} cached tokens, blocks of {grid.block}",
        f"{'tokens':>7} {'order':<11} {'kernel':<15} {'ms':>10} {'/ sdpa':>8} {'blocks':>8} {'repeats':>8}",
    ]
    groups: dict[tuple[int, str, str], list[AttentionRow]] = {}
    for row in rows:
        groups.setdefault((row.num_nodes, row.order, row.kernel), []).append(row)
    means = {name: statistics.fmean(row.forward_s for row in group) for name, group in groups.items()}
    for (nodes, order, kernel), group in groups.items():
        seconds, base = means[nodes, order, kernel], means.get((nodes, order, SDPA))
        ratio = f"{seconds / base:.2f}" if base else ""
        blocks = statistics.fmean(row.num_tree_blocks for row in group)
        repeats = min(row.repeats for row in group)
        lines.append(
            f"{nodes:>7} {order:<11} {kernel:<15} {1e3 * seconds:>10.4f} {ratio:>8} {blocks:>8.1f} {repeats:>8}"
        )
    missing = [name for name in grid.kernels if name not in {row.kernel for row in rows}]
    return "\n".join([*lines, *(f"{name} is timed on a GPU alone" for name in missing)])
