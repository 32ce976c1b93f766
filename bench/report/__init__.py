"""The command `python -m bench.report`, the pages, and what notebooks show.

Nothing is computed here: artifacts come from `bench.papers`.
"""
