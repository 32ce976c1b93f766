"""Configs as Hydra composes them (`test_composing.py`), and the cells of a sweep; nothing is run."""

from functools import cache

from hydra import compose
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

import specdec_trees.configs.cells  # noqa: F401 - which tells Hydra of the variants
from specdec_trees.configs.variants import choices as names  # noqa: F401 - what tests go through
from specdec_trees.plan.composing import composer


@cache
def composed(*overrides: str) -> DictConfig:
    with composer() as composes:
        return composes(overrides)


@cache
def of_hydra(*overrides: str) -> DictConfig:
    """Hydra's own settings, such as the sweep and the launcher."""
    with composer():
        return compose("config", overrides=list(overrides), return_hydra_config=True).hydra


def plain(config) -> dict:
    return OmegaConf.to_container(config, resolve=True)


def cells(experiment: str, *overrides: str) -> list[list[str]]:
    """The overrides of every cell of a sweep, as Hydra's sweeper makes them."""
    single = [override for override in overrides if "," not in override]
    params = of_hydra(f"experiment={experiment}", *single).sweeper.params or {}
    given = [f"{key}={value}" for key, value in params.items()] + [f"experiment={experiment}", *overrides]
    (batch,) = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(given), None)
    return batch
