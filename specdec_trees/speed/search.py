"""How long Sequoia's search takes on one core: `python -m specdec_trees.speed.search` (make bench-search)."""

import time
from collections.abc import Callable

import numpy as np

from specdec_core.search import Programme, greedy_order


def main() -> None:
    """Print seconds of each search, for a vector of 32 positions that falls as a power law."""
    falling = np.arange(1, 33.0) ** -1.5
    vector = (0.9 * falling / falling.sum()).tolist()
    searches: dict[str, Callable[[], object]] = {
        "programme, n = 127, depths 1 to 15": lambda: Programme(vector, 127, 15),
        "programme, n = 767, depths 1 to 23": lambda: Programme(vector, 767, 23),
        "programme, n = 767, any depth": lambda: Programme(vector, 767),
        "greedy, n = 4095, any depth": lambda: list(greedy_order(vector, 4095)),
    }
    print(f"{'search, 32 children at most':<38} {'seconds':>8}")
    for name, search in searches.items():
        start = time.perf_counter()
        search()
        print(f"{name:<38} {time.perf_counter() - start:>8.3f}")


if __name__ == "__main__":
    main()
