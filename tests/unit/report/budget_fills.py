"""Runs of every sized method, for the comparison at equal budget."""

from bench.papers.registry import build

SIZED = {
    "chain": lambda n: {"shape": {"_target_": "specdec_core.shapes.chain", "depth": n}},
    "binary": lambda n: {"shape": {"_target_": "specdec_core.shapes.binary_bfs", "size": n}},
    "mcsd": lambda n: {"shape": {"_target_": "specdec_core.shapes.branching_within", "size": n}},
    "spec_infer": lambda n: {"shape": {"acceptance": [0.5], "n": n}},
    "sequoia": lambda n: {"acceptance": [0.5, 0.2], "n": n, "depth": None},
    "opt_tree": lambda n: {"n": n, "delta": 0.2},
    "eagle2": lambda n: {"total": n + 1, "depth": 5, "k": 10},
    "dyspec": lambda n: {"n": n, "max_depth": 32},
    "tsd": lambda n: {"k": 4, "verify_cap": n},
    "gsd": lambda n: {"k": 4, "verify_cap": n, "tau": 2},
    "prompt_lookup_tree": lambda n: {"n": n, "num_matches": 4},
}
MALS = {"chain": 1.6, "binary": 2.0, "mcsd": 2.4, "spec_infer": 2.4, "sequoia": 3.0, "opt_tree": 3.0, "eagle2": 3.0}


def add(cells, method: str, n: int, **given) -> str:
    """A run whose trees have n nodes, or fewer by `size`."""
    return cells.add(f"sized_{method}", method, params=SIZED[method](n), **({"size": n} | given))


def fill(cells) -> None:
    """Two datasets, two temperatures, two budgets; the graphs leave two nodes of theirs unused."""
    cells.experiment = "bench/budget"
    for dataset in ("mt_bench", "c4"):
        for temperature in (0.0, 0.6):
            place = {"dataset": dataset, "temperature": temperature, "conversations": 8}
            cells.add("autoregressive", mal=1.0, speedup=1.0, **place)
            for method in SIZED:
                for n in (8, 32):
                    size = n - 2 if method in ("tsd", "gsd") else n
                    mal, speedup = MALS.get(method, 2.6) + n / 100, 1 + n / 100 + 0.02 * len(method)
                    add(cells, method, n, size=size, mal=mal, speedup=speedup, **place)


def built(cells, pair: str | None = None):
    return build("bench/budget", cells.root, pair)


def lines(axes) -> list:
    return [line for line in axes.get_lines() if line.get_marker() not in ("None", None, "")]
