"""The launcher `hydra/launcher=local_gpus`; Hydra takes launchers from this namespace alone."""

import logging
import sys
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus

from bench.workers import share_out, visible_gpus

log = logging.getLogger(__name__)


class LocalGpus(BasicLauncher):
    """Hydra's own launcher, job after job, in a process for every GPU of this machine."""

    def __init__(self, devices: Sequence[Any] | None = None) -> None:
        super().__init__()
        self.devices = [str(device) for device in devices or ()]

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run all jobs; exit status 1, behind all of them, where a process died of one or one was refused."""
        devices = self.devices or visible_gpus()
        if not devices:
            sys.exit(
                "no GPU is visible; name some by hydra.launcher.devices=[0,1], or leave out hydra/launcher=local_gpus"
            )
        if len(set(devices)) < len(devices):
            sys.exit(f"hydra.launcher.devices names a device twice: {', '.join(devices)}")

        def run(device: str, job: int) -> Any:
            log.info("job %d on %s", job, device)
            (done,) = BasicLauncher.launch(self, [job_overrides[job]], initial_job_idx + job)
            return (done.return_value,)

        found = share_out(len(job_overrides), devices, run)
        from bench.measure.runner import REFUSED  # Hydra imports this module at every start, and that one torch

        if None in found or (REFUSED,) in found:
            sys.exit(1)
        return [JobReturn(status=JobStatus.COMPLETED, _return_value=value) for (value,) in found]
