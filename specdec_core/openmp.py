"""OpenMP's threads wait passively unless the environment says otherwise; imported before torch, which reads it once.

Threads that spin while they wait take the cores of whoever they wait for: two of them beside one busy process were ten
times as slow as they are passively; on a quiet machine they take twice the CPU time and no less wall time.
"""

import os
import sys

VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What users say it with."""

if "torch" not in sys.modules and not any(name in os.environ for name in VARIABLES):
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
