"""`python -m bench.acceptance_vector pair=tiny ...`: the acceptance vector of a rule for a pair, dataset and decoding.

The same as `python -m bench.run` with these defaults, and with any override.
"""

from bench.run import command

if __name__ == "__main__":
    command(
        "measure=acceptance",
        "name=acceptance",
        "verifier=without_replacement",
        "drafter=sequoia",
        "dataset.part=calibration",
    )
