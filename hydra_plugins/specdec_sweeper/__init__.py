"""The sweeper of `conf/hydra/sweeper/once.yaml`; Hydra takes sweepers from this namespace alone."""

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper


class Sweeper(BasicSweeper):
    """Hydra's own sweeper, which composes each job once where it runs in this process."""

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose all jobs ahead for other launchers alone: Hydra's own composes each here, half a second a job."""
        if type(self.launcher) is not BasicLauncher:
            super().validate_batch_is_legal(batch)
