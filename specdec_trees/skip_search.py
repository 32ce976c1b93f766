"""`python -m specdec_trees.skip_search pair=tiny_self ...`: what a target skips when it drafts for itself (Self SSD).

Prints the best set of sublayers that the search finds, and the line for the pair's yaml. The same as
`python -m specdec_trees.run` with these defaults, and with any override, such as `calibration.skips.evaluations=500`.
"""

from specdec_trees.run import command

if __name__ == "__main__":
    command("measure=skips", "name=skips")
