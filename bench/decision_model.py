"""`python -m bench.decision_model pair=tiny ...`: the decision models of a pair and dataset, trained unless they were.

The same as `python -m bench.run` with these defaults, and with any override.
"""

from bench.run import command

if __name__ == "__main__":
    command("measure=decision", "name=improving_mcsd/fig7")
