"""Whether a figure shows anything at all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, QuadMesh
from matplotlib.transforms import Transform

from bench.artifacts.style import Figure


def empty(figure: Figure) -> bool:
    """Whether no axes has a line, mark, bar, area or image that stands for data.

    Text is no data, nor is what does not follow the data's coordinates on both axes, such as a rule across a panel.
    """
    return not any(found for axes in figure.canvas.axes for found in _data(axes))


def _data(axes: Axes) -> Iterator[bool]:
    yield from (_any_number(image.get_array()) for image in axes.images)
    yield from (_on(axes, line.get_transform()) and _any_point(line.get_xydata()) for line in axes.lines)
    yield from (_on(axes, patch.get_transform()) and _any_point(patch.get_extents().extents) for patch in axes.patches)
    yield from (_collected(axes, collection) for collection in axes.collections)


def _collected(axes: Axes, collection: Collection) -> bool:
    if isinstance(collection, QuadMesh):
        return _any_number(collection.get_array())
    if _on(axes, collection.get_offset_transform()):
        return _any_point(collection.get_offsets())
    paths = collection.get_paths()
    return _on(axes, collection.get_transform()) and any(_any_point(path.vertices) for path in paths)


def _on(axes: Axes, transform: Transform) -> bool:
    """Whether both coordinates are the data's."""
    return all(transform.contains_branch_seperately(axes.transData))


def _any_number(values: Any) -> bool:
    """Whether an array has an entry that is neither masked nor infinite nor nan."""
    return bool(np.ma.count(np.ma.masked_invalid(values)))


def _any_point(points: Any) -> bool:
    """Whether a row of an array has all its coordinates."""
    hidden = np.ma.getmaskarray(np.ma.masked_invalid(np.ma.atleast_2d(points)))
    return bool((~hidden.any(axis=-1)).any())
