"""Tree shapes: trees without tokens, given by the rank of every node among its siblings."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product
from operator import mul

Path = tuple[int, ...]
"""Ranks from the root: (0, 2) is the third best child of the best child."""


@dataclass(frozen=True)
class TreeShape:
    """A tree without tokens, as its rank paths in breadth-first order; node i + 1 is `paths[i]`, node 0 the root."""

    paths: tuple[Path, ...]

    @staticmethod
    def from_paths(paths: Iterable[Path]) -> "TreeShape":
        """Order the paths breadth first. ValueError if a node's parent or an earlier sibling is missing."""
        found = set(paths)
        for path in found:
            needed = {path[:-1]} | ({(*path[:-1], path[-1] - 1)} if path[-1] else set())
            if not needed - {()} <= found:
                raise ValueError(f"the tree shape has node {path} but not {sorted(needed - {()} - found)[0]}")
        return TreeShape(tuple(sorted(found, key=lambda path: (len(path), path))))

    @staticmethod
    def from_json(text: str) -> "TreeShape":
        """The shape that `to_json` wrote; facts beside it are passed over. ValueError if the text is no tree."""
        counts = json.loads(text).get("num_children", [])
        paths: list[Path] = [()]
        for node, count in enumerate(counts):
            if node >= len(paths):
                break
            paths += [(*paths[node], rank) for rank in range(count)]
        if len(paths) != len(counts):
            raise ValueError(f"num_children gives {len(counts)} nodes their children, but the tree has {len(paths)}")
        return TreeShape.from_paths(paths[1:])

    def to_json(self, **facts: object) -> str:
        """The shape as its nodes' numbers of children in breadth-first order, with facts about its origin."""
        sizes = {"n": self.num_drafted, "depth": self.depth}
        return json.dumps(facts | sizes | {"num_children": self.num_children})

    @property
    def num_drafted(self) -> int:
        """Tree size n, root excluded."""
        return len(self.paths)

    @property
    def depth(self) -> int:
        """Depth of the deepest node; 0 for the bare root."""
        return len(self.paths[-1]) if self.paths else 0

    @cached_property
    def parents(self) -> tuple[int, ...]:
        """Parent of every node, the root's being -1."""
        ids = {path: node for node, path in enumerate(((), *self.paths))}
        return (-1, *(ids[path[:-1]] for path in self.paths))

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Rank of every node among its siblings; 0 for the root."""
        return (0, *(path[-1] for path in self.paths))

    @cached_property
    def num_children(self) -> tuple[int, ...]:
        """Children of every node."""
        counts = [0] * (self.num_drafted + 1)
        for parent in self.parents[1:]:
            counts[parent] += 1
        return tuple(counts)

    @cached_property
    def levels(self) -> tuple[range, ...]:
        """Node ids by depth, the root's level first."""
        depths = [0, *(len(path) for path in self.paths)]
        starts = [depths.index(depth) for depth in range(self.depth + 1)] + [len(depths)]
        return tuple(range(start, end) for start, end in pairwise(starts))

    def limited(self, max_children: int) -> "TreeShape":
        """The shape without ranks that a vocabulary of `max_children` tokens cannot fill."""
        return TreeShape(tuple(path for path in self.paths if max(path) < max_children))

    def last_first(self) -> "TreeShape":
        """The shape with the last of all siblings, and what is below it, before the others."""
        counts = dict(zip(((), *self.paths), self.num_children, strict=True))
        turned = (tuple((rank + 1) % counts[path[:depth]] for depth, rank in enumerate(path)) for path in self.paths)
        return TreeShape.from_paths(turned)

    def cut(self, depth: int) -> "TreeShape":
        """The shape down to a depth."""
        return TreeShape(tuple(path for path in self.paths if len(path) <= depth))


def chain(depth: int) -> TreeShape:
    """A sequence of `depth` tokens (Leviathan et al.)."""
    return TreeShape.from_paths((0,) * length for length in range(1, depth + 1))


def kary(branching: int, depth: int) -> TreeShape:
    """The complete tree in which every node has `branching` children."""
    levels = (product(range(branching), repeat=length) for length in range(1, depth + 1))
    return TreeShape.from_paths(path for level in levels for path in level)


def k_sequences(num_sequences: int, depth: int) -> TreeShape:
    """Independent sequences below the root (SpecInfer's K x D trees)."""
    return TreeShape.from_paths((k, *(0,) * rest) for k in range(num_sequences) for rest in range(depth))


def sequences(num_sequences: int, size: int) -> TreeShape:
    """`size` nodes in independent sequences below the root, the first ones longer by one where they cannot be even."""
    lengths = (size // num_sequences + (k < size % num_sequences) for k in range(num_sequences))
    return TreeShape.from_paths((k, *(0,) * rest) for k, length in enumerate(lengths) for rest in range(length))


def branching(widths: Sequence[int]) -> TreeShape:
    """Every node of depth i has `widths[i]` children (MCSD's k-configurations, such as 4-2-2-1)."""
    levels = (product(*map(range, widths[:depth])) for depth in range(1, len(widths) + 1))
    return TreeShape.from_paths(path for level in levels for path in level)


def branching_within(size: int, levels: int = 4) -> TreeShape:
    """The largest k-configuration of at most `size` nodes in which no level branches more than the one above.

    It has `levels` levels, or `size` where that is less. Of equally large ones that with the fewest children at the
    root, then below it, and so on: 44 nodes are MCSD's 4-2-2-1.
    """

    def fitting(levels: int, room: int, most: int) -> Iterator[tuple[int, ...]]:
        """Widths of so many levels below one node, which have room for so many nodes."""
        if not levels:
            yield ()
            return
        for width in range(1, min(most, room // levels) + 1):
            for below in fitting(levels - 1, room // width - 1, width):
                yield (width, *below)

    if size < 1:
        raise ValueError(f"a tree has at least 1 node, not {size}")
    found = fitting(min(levels, size), size, size)
    return branching(min(found, key=lambda widths: (-sum(accumulate(widths, mul)), widths)))


def star(width: int) -> TreeShape:
    """`width` children of the root and nothing below."""
    return branching([width])


def kary_bfs(branching: int, size: int) -> TreeShape:
    """The first `size` nodes in breadth-first order of the infinite tree of `branching` children per node."""
    paths: list[Path] = [()]
    while len(paths) <= size:
        parent = paths[(len(paths) - 1) // branching]
        paths.append((*parent, (len(paths) - 1) % branching))
    return TreeShape.from_paths(paths[1:])


def binary_bfs(size: int) -> TreeShape:
    """The first `size` nodes of the infinite binary tree in breadth-first order."""
    return kary_bfs(2, size)


def eagle25() -> TreeShape:
    """EAGLE's fixed tree: 25 nodes, 15 leaves, depth 5 (EAGLE-1's default choices)."""
    paths = "0 1 2 3  00 01 02 10 11 20 21 30  000 001 002 010 011 020 021 100  0000 0001 0002  00000 00001"
    return TreeShape.from_paths(tuple(map(int, path)) for path in paths.split())
