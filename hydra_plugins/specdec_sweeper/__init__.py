"""The sweeper of `conf/hydra/sweeper/once.yaml`; Hydra takes sweepers from this namespace alone."""

import copy
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus, configure_log, setup_globals
from omegaconf import DictConfig, open_dict, read_write

from specdec_trees.names import shard_of

log = logging.getLogger(__name__)


class Sweeper(BasicSweeper):
    """Hydra's own sweeper, but for jobs of other shards, and with `InProcess` in place of its basic launcher."""

    def setup(self, **given: Any) -> None:
        """Take the launcher that was chosen."""
        super().setup(**given)
        if type(self.launcher) is BasicLauncher:
            self.launcher = InProcess()
            self.launcher.setup(**given)

    @staticmethod
    def split_arguments(overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """The jobs of the shard, if `shard=i/n` is among the overrides, whose jobs are in no shard then."""
        (jobs,) = BasicSweeper.split_arguments(overrides, None)
        shards = [override.value() for override in overrides if override.get_key_element() == "shard"]
        if shards and (place := shard_of(shards[-1])):
            part, parts = place
            jobs = [[text for text in job if not text.startswith("shard=")] for job in jobs[part::parts]]
            jobs = [[*job, "shard=null"] for job in jobs]
        return list(BasicSweeper.split_overrides_to_chunks(jobs, max_batch_size)) if jobs else []

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose all jobs ahead for other launchers alone: `InProcess` composes each here."""
        if not isinstance(self.launcher, InProcess):
            super().validate_batch_is_legal(batch)


class InProcess(BasicLauncher):
    """Hydra's basic launcher without its folder, log and files of each job: half a second a job.

    Settings of Hydra that need these are left to it.
    """

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run all jobs; what one raised is raised behind all of them, by who asks for its value."""
        from specdec_trees.plan.composing import composer_of  # torch, and Hydra imports this at every start

        hydra = self.config.hydra
        if hydra.callbacks or hydra.job.env_set or hydra.job.chdir:
            found: Sequence[JobReturn] = super().launch(job_overrides, initial_job_idx)
            return found
        setup_globals()
        compose, began = composer_of(self.hydra_context.config_loader), time.monotonic()
        with self._announced() as job:
            returns = []
            for number, overrides in enumerate(job_overrides, start=initial_job_idx):
                job.num = number
                returns.append(self._run(compose(overrides)))
            log.info("%d jobs, %.0f ms each", len(returns), 1000 * (time.monotonic() - began) / max(len(returns), 1))
        return returns

    @contextmanager
    def _announced(self) -> Iterator[DictConfig]:
        """Hydra's settings and log, the same of all jobs; yields what they know of the job."""
        cfg, before = copy.deepcopy(self.config), HydraConfig.instance().cfg
        with read_write(cfg.hydra), open_dict(cfg.hydra):
            cfg.hydra.runtime.output_dir = str(Path(cfg.hydra.sweep.dir).absolute())
        configure_log(cfg.hydra.job_logging, cfg.hydra.verbose)
        HydraConfig.instance().set_config(cfg)
        job = HydraConfig.get().job
        try:
            with read_write(job), open_dict(job):
                yield job
        finally:
            HydraConfig.instance().cfg = before
            configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)

    def _run(self, cfg: DictConfig) -> JobReturn:
        try:
            return JobReturn(status=JobStatus.COMPLETED, _return_value=self.task_function(cfg))
        except Exception as error:  # of a job, which breaks off none of the others
            return JobReturn(status=JobStatus.FAILED, _return_value=error)
