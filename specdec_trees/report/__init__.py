"""The command `python -m specdec_trees.report`, the pages, and what notebooks show.

Nothing is computed here: artifacts come from `specdec_trees.papers`.
"""
