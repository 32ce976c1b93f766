"""The tables and figures of the DySpec paper."""

from bench.papers.dyspec import layouts

ARMS = {name: layout.arms for name, layout in layouts.LAYOUTS.items()}
"""The methods by which the plan finds an artifact's rows in the CSV."""
