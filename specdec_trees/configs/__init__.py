"""From `conf/` to cells: options, variants, interpolations, stand-ins. Hydra ends here.

Nothing is measured here.
"""
