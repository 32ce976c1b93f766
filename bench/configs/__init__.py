"""From `conf/` to cells: options, interpolations, stand-ins. Hydra ends here.

Nothing is measured here.
"""
