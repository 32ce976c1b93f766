"""The measurement: sweeps, records, tables and figures around `specdec_core`."""

import os
import sys
from types import TracebackType

# as `specdec_core.openmp`, for modules that import torch first; reports import neither
if "torch" not in sys.modules and not any(
    name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
):
    os.environ["GOMP_SPINCOUNT"] = "1000"


def _stopped(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """A sentence in place of a traceback where Ctrl-C ends a command, be it by way of an error that it led to."""
    cause: BaseException | None = error
    while cause and not isinstance(cause, KeyboardInterrupt):
        cause = cause.__context__
    if cause:
        print("stopped by Ctrl-C", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


if sys.argv[:1] == ["-m"]:  # `python -m bench.X` has imported no more than this package yet
    sys.excepthook = _stopped
