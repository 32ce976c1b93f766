"""`python -m bench.latency pair=tiny ...`: times of target and draft forwards on this device, by number of tokens.

The same as `python -m bench.run` with these defaults, and with any override.
"""

from bench.run import command

if __name__ == "__main__":
    command("measure=latency", "name=sequoia/fig4")
