"""`python -m specdec_trees.record pair=tiny dataset=mt_bench`: the target's own answers, recorded unless they were.

The same as `python -m specdec_trees.run` with these defaults, and any override; `runtime.replay=true` then reads it.
"""

from specdec_trees.run import command

if __name__ == "__main__":
    command("measure=recording", "drafter=autoregressive", "name=recordings")
