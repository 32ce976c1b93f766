"""`python -m bench.record pair=tiny dataset=mt_bench`: the target's own answers, recorded unless they were.

The same as `python -m bench.run` with these defaults, and with any override; `runtime.replay=true` runs cells on them.
"""

from bench.run import command

if __name__ == "__main__":
    command("measure=recording", "drafter=autoregressive", "name=recordings")
