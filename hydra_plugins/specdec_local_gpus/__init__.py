"""The launcher `hydra/launcher=local_gpus`; Hydra takes launchers from this namespace alone."""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra.core.utils import JobReturn, JobStatus

from specdec_trees.workers import resolved, share_out, visible_gpus

log = logging.getLogger(__name__)


class LocalGpus(BasicLauncher):
    """Hydra's own launcher, job after job, in a process for every GPU of this machine."""

    def __init__(self, devices: Sequence[Any] | None = None) -> None:
        super().__init__()
        self.devices = devices

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run all jobs; exit status 1, behind all of them, where a process died of one or one was refused."""
        devices = _chosen(self.devices)

        def run(device: str, job: int) -> Any:
            log.info("job %d on %s", job, device)
            (done,) = BasicLauncher.launch(self, [job_overrides[job]], initial_job_idx + job)
            return (done.return_value,)

        found = share_out(len(job_overrides), devices, run)
        from specdec_trees.measure.runner import (  # torch, and Hydra imports this at every start
            BUSY,
            REFUSED,
            left_to_others,
        )

        if busy := found.count((BUSY,)):
            log.warning("%s", left_to_others(busy))
        if None in found or (REFUSED,) in found:
            sys.exit(1)
        return [JobReturn(status=JobStatus.COMPLETED, _return_value=value) for (value,) in found]


def _chosen(named: Sequence[Any] | None) -> list[str]:
    """The devices to run on; the process ends with a sentence where they are none, or not among the visible ones."""
    visible = visible_gpus()
    if named is None and not visible:
        sys.exit("no GPU is visible; name some by hydra.launcher.devices=[0,1], or leave out hydra/launcher=local_gpus")
    if named is None:
        return visible
    if isinstance(named, str) or not isinstance(named, Sequence) or not named:
        sys.exit(f"hydra.launcher.devices is a list such as [0,1], or null for all that are visible, not {named}")
    devices = resolved([str(device) for device in named])
    given = "CUDA_VISIBLE_DEVICES" in os.environ
    for name, device in zip(named, devices, strict=True):
        part = not given and device.startswith("MIG-")  # of a GPU: nobody lists these
        if not device or ((given or visible) and device not in visible and not part):
            sys.exit(f"hydra.launcher.devices names {name}, and visible is: {', '.join(visible) or 'no GPU'}")
    if len(set(devices)) < len(devices):
        sys.exit(f"hydra.launcher.devices names a device twice: {', '.join(map(str, named))}")
    return devices
