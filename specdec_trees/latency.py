"""`python -m specdec_trees.latency pair=tiny ...`: times of target and draft forwards on this device, by tokens.

The same as `python -m specdec_trees.run` with these defaults, and with any override.
"""

from specdec_trees.run import command

if __name__ == "__main__":
    command("measure=latency", "name=sequoia/fig4")
