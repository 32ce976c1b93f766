"""The tables and figures of improved MCSD (Lu et al., 2024)."""

from bench.papers.improving_mcsd import acceptance, methods, quality

ARMS = {
    "table1": [one.arm({}) for one in quality.METHODS.values() if one.rule == methods.LOSSY_RULE],
    **{
        name: [one.arm(one.params) for one in layout.methods if one.params]
        for name, layout in acceptance.LAYOUTS.items()
    },
}
"""The methods by which the plan finds an artifact's rows in the CSV; those of Table 1 state first tokens alone."""
