"""Choices that have no file of their own: `variants.yaml`, told to Hydra beside the files of `conf/`."""

from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from specdec_trees.locations import CONF, own_conf, yamls


def register() -> None:
    """Tell Hydra of all variants, once or again: a base, own values, and an own name where the base has one."""
    listed = [path for conf in (CONF, own_conf()) if (path := conf / "variants.yaml").is_file()]
    plain: Any = OmegaConf.to_container(OmegaConf.merge(*map(OmegaConf.load, listed)), resolve=False)
    for group, bases in plain.items():
        files = yamls(group)
        for base, variants in bases.items():
            named = "name" in OmegaConf.load(files[base])
            for name, values in variants.items():
                node = {"defaults": [base, "_self_"], **({"name": name} if named else {}), **values}
                ConfigStore.instance().store(name, node, group)


def choices(group: str) -> list[str]:
    """What can be chosen in a folder of `conf/`, sorted: its files and their variants."""
    stored = ConfigStore.instance().repo.get(group, {})
    return sorted({*yamls(group), *(name.removesuffix(".yaml") for name in stored)})
