"""`python -m bench.acceptance_vector pair=tiny ...`: the acceptance vector of a rule for a pair, dataset and decoding.

The same as `python -m bench.run` with DEFAULTS, and with any override.
"""

import sys

from bench import run

DEFAULTS = ("measure=acceptance", "name=acceptance", "verifier=without_replacement", "dataset.part=calibration")


def main() -> None:
    """Put the defaults before what was given, which wins."""
    run.check_choices(sys.argv[1:])
    given = {argument.partition("=")[0] for argument in sys.argv[1:]}
    sys.argv[1:1] = [default for default in DEFAULTS if default.partition("=")[0] not in given]
    run.main()


if __name__ == "__main__":
    main()
