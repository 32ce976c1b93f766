"""How much slower `make smoke` is beside two busy loops: `make test-busy`. It fails where that is more than threefold.

No part of the tests: only a quiet machine can tell, and it takes several minutes.
"""

import multiprocessing
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOOPS, MOST = 2, 3.0


def spin() -> None:
    """Keep a core busy."""
    for _ in count():
        pass


def smoke(*words: str) -> float:
    """Seconds of `make smoke` into a folder of its own."""
    with tempfile.TemporaryDirectory() as results:
        start = time.monotonic()
        subprocess.run(["make", "-C", ROOT, "smoke", f"RESULTS={results}", *words], check=True, stdout=sys.stderr)
        return time.monotonic() - start


def main() -> None:
    """Quiet, then busy."""
    quiet = smoke(*sys.argv[1:])
    loops = [multiprocessing.Process(target=spin, daemon=True) for _ in range(LOOPS)]
    for loop in loops:
        loop.start()
    busy = smoke(*sys.argv[1:])
    for loop in loops:
        loop.terminate()
    print(f"make smoke: {quiet:.0f} s quiet, {busy:.0f} s beside {LOOPS} busy loops: {busy / quiet:.2f}x")
    sys.exit(busy > MOST * quiet)


if __name__ == "__main__":
    main()
