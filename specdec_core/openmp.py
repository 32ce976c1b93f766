"""OpenMP's threads spin while they wait, only briefly on a machine that is busy already. Imported before torch.

Threads that spin on take the core that another process wants, and with it that of the thread for which they wait.
Threads that sleep have to be woken for every operation. OPT-Tree (n = 25) with the embedded pair on two cores, in
tokens/s, medians of two or three runs:

    GOMP_SPINCOUNT                      300,000 (libgomp's default)   1,000    0 (passive)
    AMD EPYC     quiet                                          255     250            172
                 beside a busy process                           78     156            204
    Intel Xeon   quiet                                          372     225
                 beside a busy process                           85     180

Only libgomp reads the variable, once (https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fSPINCOUNT.html), as torch's CPU
wheels for Linux have it; other runtimes wait as they do by default. Who sets OMP_NUM_THREADS knows what else runs.
"""

import os
import sys
import time
from pathlib import Path

SPINS = "1000"
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""What users say it with."""
LOOKS, APART_S = 10, 0.005


def crowded(running: Path = Path("/proc/loadavg")) -> bool:
    """Whether at every look more wanted to run, a thread of ours on each core included, than the machine has cores.

    False where the system does not tell. With some of a machine's cores it sees the others too: a guess.
    """
    free = (os.cpu_count() or 1) - len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    for _ in range(LOOKS):
        try:
            others = int(running.read_text().split()[3].partition("/")[0]) - 1  # without this process
        except (OSError, ValueError, IndexError):
            return False
        if others <= free:
            return False
        time.sleep(APART_S)
    return True


if "torch" not in sys.modules and not any(name in os.environ for name in (*VARIABLES, "OMP_NUM_THREADS")) and crowded():
    os.environ["GOMP_SPINCOUNT"] = SPINS
