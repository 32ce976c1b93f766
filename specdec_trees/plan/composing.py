"""Many configs of one sweep, as `hydra.compose` gives them, at a fraction of its time.

Hydra reads every yaml anew for every config, and merges its own settings, which no cell knows, into each. Here files
are read once, overrides are parsed once, and Hydra's settings are left out; the order of defaults, what is merged into
what, and how overrides are applied stay Hydra's own functions.
"""

import copy
import functools
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra._internal.defaults_list import Overrides, _create_defaults_list
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from specdec_trees.configs import resolvers
from specdec_trees.locations import CONF, yamls
from specdec_trees.measure.file_digests import state

CONFIG = "config"
HYDRA = "hydra/"
"""Where the groups of Hydra's own settings are."""


class Kept(ConfigRepository):
    """Hydra's repository, but every file is read once; each reader gets a copy of its own."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        self._pickled: dict[str, bytes] = {}
        super().__init__(config_search_path)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return copy.copy(self)  # for one config, with what was read for the others

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        """Look elsewhere, where nothing was read yet."""
        self._pickled = {}
        super().initialize_sources(config_search_path)

    def load_config(self, config_path: str) -> ConfigResult | None:
        """A copy of a config; None if there is none."""
        if config_path not in self._pickled:
            self._pickled[config_path] = pickle.dumps(super().load_config(config_path))
        found: ConfigResult | None = pickle.loads(self._pickled[config_path])
        return found


class Composer:
    """Composes configs of `conf/`; made by `composer`."""

    def __init__(self, loader: ConfigLoaderImpl, repository: Kept) -> None:
        self._loader, self._copies = loader, repository
        self._shared = CachingConfigRepository(repository)  # what only looks at configs needs no copies
        self._chosen: dict[tuple[str | None, ...], bytes] = {}

    def __call__(self, overrides: Sequence[str]) -> DictConfig:
        """The config of these overrides. Raises what `hydra.compose` raises."""
        try:
            parsed = [copy.copy(_parsed(text)) for text in overrides]
            if not any(one.is_hydra_override() or one.is_sweep_override() for one in parsed):
                return self._composed(parsed)
        except (HydraException, OmegaConfBaseException):
            pass  # said by Hydra itself
        return compose(CONFIG, list(overrides))

    def _composed(self, parsed: list[Override]) -> DictConfig:
        """What groups are chosen is composed once; a job's own values are set in a copy of it."""
        groups = [one for one in parsed if self._shared.group_exists(one.key_or_group)]
        values = [one for one in parsed if one not in groups]
        if any(isinstance(one.value(), dict) for one in groups):
            return self._anew(parsed)
        key = tuple(one.input_line for one in groups)
        if key not in self._chosen:
            self._chosen[key] = pickle.dumps(self._anew(groups))
        cfg: DictConfig = pickle.loads(self._chosen[key])
        self._loader._apply_overrides_to_config(values, cfg)
        with open_dict(cfg):
            cfg.pop("hydra", None)
        return cfg

    def _anew(self, parsed: list[Override]) -> DictConfig:
        overrides = Overrides(repo=self._shared, overrides_list=parsed)
        defaults, _ = _create_defaults_list(self._shared, CONFIG, overrides, prepend_hydra=False, skip_missing=False)
        for key, found in overrides.override_metadata.items():
            found.used = found.used or key.startswith(HYDRA)
        overrides.ensure_overrides_used()
        overrides.ensure_deletions_used()
        cfg = self._loader._compose_config_from_defaults_list(defaults=defaults, repo=self._copies)
        OmegaConf.set_struct(cfg, True)
        self._loader._apply_overrides_to_config(overrides.config_overrides, cfg)
        with open_dict(cfg):
            cfg.pop("hydra", None)
        return cfg


@contextmanager
def composer() -> Iterator[Composer]:
    """Hydra initialised with `conf/`, and its composer; `hydra.compose` reads every file once in it, too."""
    resolvers.register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        yield composer_of(loader)


def composer_of(loader: ConfigLoader) -> Composer:
    """The composer of a loader, which itself reads every file once from now on."""
    assert isinstance(loader, ConfigLoaderImpl)
    files = tuple((str(path), state(path)) for path in yamls().values())
    loader.repository = repository = _repository(loader.config_search_path, files)
    return Composer(loader, repository)


_KEPT: dict[str, Any] = {}


def _repository(search_path: ConfigSearchPath, files: tuple[Any, ...]) -> Kept:
    """The repository of this search path, until a file of `conf/` changes."""
    key = (str(search_path), files)
    if _KEPT.get("key") != key:
        _KEPT.update(key=key, repository=Kept(search_path))
    kept: Kept = _KEPT["repository"]
    return kept


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Override:
    override: Override = OverridesParser.create().parse_override(text)
    return override
