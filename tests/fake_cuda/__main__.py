"""`python -m fake_cuda`: write counts.csv anew."""

import importlib

from fake_cuda.plugin import REASON  # which loads the device, before torch

if REASON:
    raise SystemExit(REASON)
importlib.import_module("fake_cuda.counts").write()
