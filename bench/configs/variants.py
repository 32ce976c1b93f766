"""Choices that have no file of their own: `conf/variants.yaml`, told to Hydra beside the files of `conf/`."""

from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from bench.configs.options import CONF


def register() -> None:
    """Tell Hydra of all variants, once or again: a base, own values, and an own name where the base has one."""
    plain: Any = OmegaConf.to_container(OmegaConf.load(CONF / "variants.yaml"), resolve=False)
    for group, bases in plain.items():
        for base, variants in bases.items():
            named = "name" in OmegaConf.load(CONF / group / f"{base}.yaml")
            for name, values in variants.items():
                node = {"defaults": [base, "_self_"], **({"name": name} if named else {}), **values}
                ConfigStore.instance().store(name, node, group)


def choices(group: str) -> list[str]:
    """What can be chosen in a folder of `conf/`, sorted: its files and their variants."""
    files = [path.relative_to(CONF / group).with_suffix("").as_posix() for path in (CONF / group).rglob("*.yaml")]
    stored = ConfigStore.instance().repo.get(group, {})
    return sorted([*files, *(name.removesuffix(".yaml") for name in stored)])
