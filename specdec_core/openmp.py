"""OpenMP's threads spin briefly while they wait, then sleep; imported before torch, which reads this once.

Beside one busy process, threads that spin on take the core of the thread for which they wait. Threads that sleep at
once have to be woken for every operation, which on a quiet machine may take as long as the operation itself. Measured
on two cores of an AMD EPYC, OPT-Tree (n = 25) with the embedded pair on four prompts, two runs each, in tokens/s:

    GOMP_SPINCOUNT           300,000 (libgomp's default)   1,000    0 (passive)
    quiet                                            255     250            172
    beside a busy process                             78     156            204

Only libgomp reads the variable (https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html), as torch's CPU wheels
for Linux have it; other runtimes wait as they do by default.
"""

import os
import sys

SPINS = "1000"
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What users say it with."""

if "torch" not in sys.modules and not any(name in os.environ for name in VARIABLES):
    os.environ["GOMP_SPINCOUNT"] = SPINS
