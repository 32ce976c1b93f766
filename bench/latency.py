"""`python -m bench.latency pair=tiny ...`: times of target and draft forwards on this device, by number of tokens.

The same as `python -m bench.run` with DEFAULTS, and with any override.
"""

import sys

from bench import run

DEFAULTS = ("measure=latency", "name=sequoia/fig4")


def main() -> None:
    """Put the defaults before what was given, which wins."""
    run.check_choices(sys.argv[1:])
    given = {argument.partition("=")[0] for argument in sys.argv[1:]}
    sys.argv[1:1] = [default for default in DEFAULTS if default.partition("=")[0] not in given]
    run.main()


if __name__ == "__main__":
    main()
