"""The measurement: sweeps, records, tables and figures around `specdec_core`."""

import os
import sys

# as `specdec_core.openmp`, for modules that import torch first; reports import neither
if "torch" not in sys.modules and not any(
    name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
):
    os.environ["GOMP_SPINCOUNT"] = "1000"
