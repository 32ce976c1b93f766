"""A cell's way: its pair is loaded, its prompts are decoded in two arms, audited, and made rows.

No Hydra, no tables; what is measured once for many cells lives in `specdec_trees.calibrate`.
"""
