"""The tables and figures of GSD (Gong et al., 2024)."""

from bench.papers.gsd import by_dataset, operations, quality, table1

ARMS = {
    **{name: layout.arms for name, layout in by_dataset.LAYOUTS.items()},
    "table1": (*table1.ARMS, *table1.OWN),
    "table3": operations.ARMS,
    "table10": quality.ARMS,
}
"""The methods by which the plan finds an artifact's rows in the CSV."""
