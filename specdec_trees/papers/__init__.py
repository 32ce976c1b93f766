"""What is peculiar to each artifact of each paper, in one place, and the registry of all.

No torch; a paper imports the engine (`specdec_trees.artifacts`) and no other paper.
"""
