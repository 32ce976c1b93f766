"""The measurement: sweeps, records, tables and figures around `specdec_core`."""

import os

# as `specdec_core.openmp`, for modules that import torch first; reports import neither
if not any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")):
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
