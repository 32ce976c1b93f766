"""`python -m specdec_trees.acceptance_vector pair=tiny ...`: a rule's acceptance vector for a pair and dataset.

The same as `python -m specdec_trees.run` with these defaults, and with any override.
"""

from specdec_trees.run import command

if __name__ == "__main__":
    command(
        "measure=acceptance",
        "name=acceptance",
        "verifier=without_replacement",
        "drafter=sequoia",
        "dataset.part=calibration",
    )
