"""Configs as Hydra composes them, and the cells of a sweep; nothing is run."""

from functools import cache

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from bench.configs.variants import choices as names  # noqa: F401 - what tests go through
from bench.run import CONF


@cache
def composed(*overrides: str):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=list(overrides), return_hydra_config=True)


def plain(config) -> dict:
    return OmegaConf.to_container(
        OmegaConf.masked_copy(config, [key for key in config if key != "hydra"]), resolve=True
    )


def cells(experiment: str, *overrides: str) -> list[list[str]]:
    """The overrides of every cell of a sweep, as Hydra's sweeper makes them."""
    single = [override for override in overrides if "," not in override]
    params = composed(f"experiment={experiment}", *single).hydra.sweeper.params or {}
    given = [f"{key}={value}" for key, value in params.items()] + [f"experiment={experiment}", *overrides]
    (batch,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(given), None)
    return batch
