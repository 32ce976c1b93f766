"""Intervals by leaving out conversations, paired comparisons, and the metrics that are made of rows.

No torch, no files, no words for tables.
"""
