"""`python -m specdec_trees.attention`: times of attention over random trees on this device, by kernel and node order.

The same as `python -m specdec_trees.run` with these defaults, and with any override, such as
`attention.heads=4 attention.kv_heads=4 attention.num_tokens=[256,512]`, which is a matter of seconds on a CPU.
"""

from specdec_trees.run import command

if __name__ == "__main__":
    command("measure=attention", "name=dyspec/table5")
