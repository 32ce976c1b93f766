"""`python -m specdec_trees.decision_model pair=tiny ...`: a pair's decision models, trained unless they were.

The same as `python -m specdec_trees.run` with these defaults, and with any override.
"""

from specdec_trees.run import command

if __name__ == "__main__":
    command("measure=decision", "name=improving_mcsd/fig7")
