"""OpenMP's threads spin briefly while they wait, then sleep; imported before torch, which reads this once.

Beside one busy process, threads that spin on take the core of the thread for which they wait. Threads that sleep at
once have to be woken for every operation, which on a quiet machine may take as long as the operation itself. Here
decoding with OPT-Tree runs at 257 tokens/s (spinning, as libgomp does by default), 250 (1,000 spins) and 172 (none) on
two quiet cores, and at 78, 156 and 204 beside one busy process. 1,000 is what libgomp itself takes where threads
outnumber cores.
"""

import os
import sys

SPINS = "1000"
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What users say it with."""

if "torch" not in sys.modules and not any(name in os.environ for name in VARIABLES):
    os.environ["GOMP_SPINCOUNT"] = SPINS
