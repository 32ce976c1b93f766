"""What is measured once and kept for many cells: acceptance vectors, forward times, attention, decision models.

No Hydra, no tables.
"""
