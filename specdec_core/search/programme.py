"""Sequoia's dynamic programme: the best tree of every size and depth for an acceptance vector."""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from specdec_core.search.acceptance import check_acceptance
from specdec_core.shapes import Path, TreeShape

_NONE = -np.inf


class Programme:
    """Best expected tokens for all sizes up to `n` and all depths up to `depth` (None: any), and the trees themselves.

    Sequoia, section 3.1 and appendix D, for any vector, zeros and increasing ones too. `T[l][b][m]` is the best tree of
    m nodes (root counted) on l levels whose root has b children; its last child takes m - y nodes, the others y. Ties
    give the nodes to the earlier children, and fewer children. O(levels children n^2) time.
    """

    def __init__(
        self, acceptance: Sequence[float], n: int, depth: int | None = None, max_children: int | None = None
    ) -> None:
        if n < 0 or (depth is not None and depth < 0):
            raise ValueError(f"a tree has n >= 0 drafted nodes and depth >= 0, not {n} and {depth}")
        self.acceptance, self.n, self.depth = check_acceptance(acceptance), n, depth
        self.children = min(self.acceptance.size, n, n if max_children is None else max_children)
        if depth is None:
            levels = [self._any_depth()]
        else:
            levels = [self._level(None)]
            for _ in range(depth):
                levels.append(self._level(levels[-1][0]))
        self._values, self._branches, self._splits = (np.stack(part) for part in zip(*levels, strict=True))

    def values(self, depth: int | None = None) -> np.ndarray:
        """Best expected tokens by size n = 0, 1, ... at most this deep; -inf where no tree is that large."""
        return self._values[self._at(depth), 1:]

    def largest(self, depth: int | None = None) -> int:
        """The largest size for which there is a tree."""
        return int(np.isfinite(self.values(depth)).nonzero()[0][-1])

    def tree(self, n: int, depth: int | None = None) -> TreeShape:
        """The best tree of exactly n drafted nodes and at most this depth. ValueError if there is none."""
        level = self._at(depth)
        if n > self.n or not np.isfinite(self._values[level, n + 1]):
            raise ValueError(f"no tree of {n} nodes fits; the largest has {self.largest(depth)}")
        paths: list[Path] = []
        todo: list[tuple[int, int, Path]] = [(level, n + 1, ())]
        while todo:
            level, size, path = todo.pop()
            for rank in range(int(self._branches[level, size]) - 1, -1, -1):
                others = int(self._splits[level, rank + 1, size])
                paths.append((*path, rank))
                todo.append((max(level - 1, 0), size - others, paths[-1]))
                size = others
        return TreeShape.from_paths(paths)

    def _at(self, depth: int | None) -> int:
        if self.depth is None or depth is None:
            return len(self._values) - 1
        return min(depth, self.depth)

    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        table = np.full((self.children + 1, self.n + 2), _NONE)
        table[0, 1] = 0.0
        return table, np.zeros(table.shape, dtype=np.int32)

    def _level(self, below: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One more level on top of the best trees `below` (None: bare roots only)."""
        table, splits = self._tables()
        if below is not None:
            for child in range(1, self.children + 1):
                sums = table[child - 1] + _toeplitz(_gain(self.acceptance[child - 1], below))
                splits[child] = sums.shape[1] - 1 - sums[:, ::-1].argmax(1)
                table[child] = np.take_along_axis(sums, splits[child][:, None], 1)[:, 0]
        return 1.0 + table.max(0), table.argmax(0), splits

    def _any_depth(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All sizes in ascending order: a child's subtree is smaller than the tree."""
        table, splits = self._tables()
        gains = np.full(table.shape, _NONE)
        values = np.full(self.n + 2, _NONE)
        for size in range(1, self.n + 2):
            if size > 1 and self.children:
                sums = table[:-1, 1:size] + gains[1:, size - 1 : 0 : -1]
                splits[1:, size] = size - 1 - sums[:, ::-1].argmax(1)
                table[1:, size] = sums.max(1)
            values[size] = 1.0 + table[:, size].max()
            gains[1:, size] = [_gain(p, values[size : size + 1])[0] for p in self.acceptance[: self.children]]
        return values, table.argmax(0), splits


def _gain(probability: float, below: np.ndarray) -> np.ndarray:
    """What a child adds by the size of its subtree; 0 times a tree that does not exist is still none."""
    return np.where(np.isfinite(below), probability * np.where(np.isfinite(below), below, 0.0), _NONE)


def _toeplitz(gain: np.ndarray) -> np.ndarray:
    """Row m, column y: gain[m - y], or none where that is no size. A view."""
    last = gain.size - 1
    reverse = np.concatenate([gain[::-1], np.full(last, _NONE)])
    return sliding_window_view(reverse, gain.size)[::-1]
