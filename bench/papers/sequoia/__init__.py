"""The tables and figures of the Sequoia paper."""

from bench.papers.sequoia import layouts

ARMS = {name: layout.arms for name, layout in layouts.LAYOUTS.items()} | {"fig5b": layouts.LAYOUTS["table6"].arms}
"""The methods by which the plan finds an artifact's rows in the CSV."""
