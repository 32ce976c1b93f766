"""What options there are and what they may be: sentences for those that are mistyped, before anything is loaded.

Names are held against the yamls and what their values are given to, values against the type hints of the latter.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, get_args

import hydra
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from specdec_core.sampling import Sampling
from specdec_trees.calibrate.drafters import HARDWARE, MEASURED
from specdec_trees.configs.resolvers import UNPRINTED
from specdec_trees.configs.values import bounded, expected, fits, parameters, required, shown, stays_inside
from specdec_trees.locations import CONF, yamls
from specdec_trees.measure.cell import CalibrationPlan, PairSpec, Runtime
from specdec_trees.names import lacks, unknown
from specdec_trees.prompts.datasets import DatasetSpec, lacking
from specdec_trees.results.rows import RECORDED

GLOBAL = ("experiment", "paper")
"""Folders of `conf` whose yamls may hold any option: experiments, and what a paper's have in common."""
TOP: dict[str, Any] = {
    **dict.fromkeys(("name", "measure", "results_dir"), str),
    **dict.fromkeys(("force", "case_study", "allow_useless_draft", *(f"record_{table}" for table in RECORDED)), bool),
    **dict.fromkeys(("data_dir", "retry"), str | None),
    **dict.fromkeys(("seed", "size"), int),
    "limit": int | None,
}
"""Options that belong to no section; `size` is of the drafters for curves over tree size."""
ELSEWHERE = {"data_dir", "retry_failed", *TOP}
"""Fields of `Runtime` that are options of no section."""
SECTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "decoding": (Sampling, {"max_new_tokens": int, "ignore_eos": bool}),
    "pair": (PairSpec, {"draft_temperature": float, "published": Any}),
    "dataset": (DatasetSpec, {}),
    "runtime": (Runtime, {}),
    "calibration": (CalibrationPlan, {}),
}
"""What the values of a section are given to, and what is not given to it."""
BESIDE: dict[str, dict[str, Any]] = {
    "drafter": {"name": str, "method": str},
    "verifier": {"name": str, "allow_lossy": bool},
    "attention": {},
}
"""Sections that say themselves what takes their values, and what is not given to it."""


COUNTS = ("limit", "decoding.max_new_tokens", "dataset.max_new_tokens", "dataset.prompt_tokens")
"""Options of which there is at least one, where they are given."""


class Plain(Mapping[str, Any]):
    """A composed config as plain values, which are not to be changed: each section is resolved once, when asked for.

    ValueError, a sentence, where what a section refers to cannot be had.
    """

    def __init__(self, cfg: DictConfig) -> None:
        self.cfg, self.names, self.checked = cfg, tuple(map(str, cfg)), False
        self._sections: dict[str, Any] = {}

    @classmethod
    def of(cls, given: "DictConfig | Plain") -> Self:
        """Of a composed config; such a view is given back, with all that it has resolved."""
        return given if isinstance(given, cls) else cls(given)  # type: ignore[arg-type]

    def __getitem__(self, name: str) -> Any:
        if name not in self._sections:
            self._sections[name] = _plain(self.cfg, name)
        return self._sections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names


def check_values(given: DictConfig | Plain) -> None:
    """ValueError, a sentence, for the first option of a composed config that is unknown, missing or not of its type."""
    plain = Plain.of(given)
    if not plain.checked:
        _check_all(plain)
    plain.checked = True


def _check_all(plain: Plain) -> None:
    for name in plain:
        check_names(name)
    for name, hint in TOP.items():
        if name in plain:
            _check(plain.cfg, name, plain[name], hint)
    if not plain["results_dir"].strip():
        raise ValueError("results_dir is empty; give a folder, such as results_dir=results")
    for name, (taker, beside) in SECTIONS.items():
        _check_section(plain.cfg, name, plain[name], taker, beside)
    for name, others in BESIDE.items():
        _check_section(plain.cfg, name, plain[name], _taker(name, plain[name]), others)
    if plain["data_dir"] is not None and not Path(plain["data_dir"]).is_dir():
        raise ValueError(f"data_dir={shown(plain['data_dir'])}: there is no such folder")
    for place in COUNTS:
        section, _, name = place.rpartition(".")
        count = (plain[section] if section else plain).get(name)
        if count is not None and count < 1:
            raise ValueError(f"{_typed(plain.cfg, place, count)}={count}: at least one is expected")


def _check_section(
    cfg: DictConfig, place: str, config: Mapping[str, Any], taker: Callable[..., Any], beside: Mapping[str, Any]
) -> None:
    """Every value of a section, and of the sections in it."""
    hints = {**_hints(taker, place), **beside}
    for name in config:
        if name == "decision" and name not in hints and place == "drafter":
            raise ValueError(f"drafter {config['name']} takes no decision model; drafter=dyn_mcsd does")
        if name not in hints and name != "_target_":
            raise ValueError(unknown("option", f"{place}.{name}", [f"{place}.{known}" for known in hints]))
    if missing := _lacking(taker, config, hints):
        what = f"{place} {config['name']}" if config.get("name") else place
        raise ValueError(lacks(what, missing, _example(place, config)))
    for name, value in config.items():
        if name != "_target_":
            _check(cfg, f"{place}.{name}", value, hints[name])


def _lacking(taker: Callable[..., Any], config: Mapping[str, Any], hints: Mapping[str, Any]) -> list[str]:
    """What a section and those in it do not say and have no default for."""
    if taker is DatasetSpec:
        return lacking(config)
    found = [name for name in required(taker) if name in hints and name not in config]
    for name, value in config.items():
        if isinstance(value, Mapping) and "_target_" not in value and (inner := _dataclass(hints.get(name))):
            found += [f"{name}.{key}" for key in _lacking(inner, value, parameters(inner))]
    return found


def _example(place: str, config: Mapping[str, Any]) -> str:
    """The yaml of `conf` that has most in common with a section: keys, and their values."""
    folder, _, within = place.partition(".")

    def alike(name: str) -> int:
        loaded = OmegaConf.load(known[name])
        node = OmegaConf.select(loaded, within) if within else loaded
        plain: Any = OmegaConf.to_container(node, resolve=False) if OmegaConf.is_dict(node) else {}
        return sum((name in plain) + (plain.get(name, config) == value) for name, value in config.items())

    known = {name: path for name, path in yamls(folder).items() if "/" not in name}
    return f"conf/{folder}/{max(known, key=alike)}.yaml"


def _dataclass(hint: Any) -> Any:
    """The dataclass that a hint is or allows; None if there is none."""
    return next((one for one in (hint, *get_args(hint)) if isinstance(one, type) and is_dataclass(one)), None)


def _check(cfg: DictConfig, place: str, value: Any, hint: Any) -> None:
    """One value, or the section that stands for one."""
    if isinstance(value, Mapping):
        if "_target_" in value:
            return _check_section(cfg, place, value, _taker(place, value), {})
        if inner := _dataclass(hint):
            return _check_section(cfg, place, value, inner, {})
    if value == UNPRINTED and place in ("drafter.n", "drafter.depth"):
        return None  # refused where the cell is made: the others of its sweep may be planned and run
    if not fits(value, hint):
        raise ValueError(f"{_typed(cfg, place, value)}={shown(value)}: {expected(hint)} is expected")
    if not bounded(value):
        raise ValueError(f"{_typed(cfg, place, value)}={shown(value)}: numbers are finite, whole ones below 2^63")
    if place.rpartition(".")[2] == "name" and isinstance(value, str) and not stays_inside(value):
        raise ValueError(f"{place}={shown(value)}: a name is a path inside of a folder, without hidden parts and ..")
    return None


def _taker(place: str, config: Mapping[str, Any]) -> Callable[..., Any]:
    """What `_target_` names."""
    try:
        taker: Callable[..., Any] = hydra.utils.get_method(config["_target_"])
    except (ImportError, ValueError) as error:
        raise ValueError(f"{place}._target_={config['_target_']}: there is no such class or function") from error
    return taker


def _hints(taker: Callable[..., Any], place: str) -> dict[str, Any]:
    """What a section may hold: no models, but words for what is measured or trained first."""
    hints = {name: hint for name, hint in parameters(taker).items() if name != "draft" or taker is PairSpec}
    if taker is Runtime:
        return {name: hint for name, hint in hints.items() if name not in ELSEWHERE}
    if "decision" in hints and place == "drafter":
        hints["decision"] = Any
    if "delta" in hints and place == "drafter":
        hints["delta"] |= Literal[HARDWARE]
    if "acceptance" in hints and place.startswith("drafter"):
        hints["acceptance"] |= Literal[MEASURED]
        if place == "drafter":
            hints |= {name: hints[name] | Literal[HARDWARE] for name in ("n", "depth") if name in hints}
    return hints


def _plain(cfg: DictConfig, place: str) -> Any:
    """A part of the config as plain values; a sentence where what it refers to cannot be had."""
    try:
        value = cfg[place]
        whole = OmegaConf.is_config(value)
        return OmegaConf.to_container(value, resolve=True, throw_on_missing=True) if whole else value
    except OmegaConfBaseException as error:
        reason = str(error).splitlines()[0]
        ours = reason.partition("ValueError raised while resolving interpolation: ")[2]
        raise ValueError(ours or f"{getattr(error, 'full_key', None) or place}: {reason}") from error


def _typed(cfg: DictConfig, place: str, value: Any) -> str:
    """The option that a value comes from, where what stands at a place refers to another."""
    parent, _, name = place.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    siblings: Any = OmegaConf.to_container(node, resolve=False)
    raw = siblings[name]
    for other in re.findall(r"\w[\w.]*", raw) if isinstance(raw, str) and "${" in raw else []:
        found = OmegaConf.select(cfg, other, default=None)
        if other != place and (OmegaConf.to_container(found) if OmegaConf.is_config(found) else found) == value:
            return _typed(cfg, other, value)
    return place


@cache
def check_names(key: str) -> None:
    """ValueError for an option that no yaml has, and nothing that takes what a yaml says."""
    known = {name: holds for folder in (".", *GLOBAL) for name, holds in options(folder).items()}
    section = key.partition(".")[0]
    if section in BESIDE or section in SECTIONS:
        known |= options(section)
    parts = key.replace("[", ".").split(".")
    above = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    holder = next((name for name in above if name in known), None)
    if holder is None or (holder != key and known[holder]):
        whole = [name for name in known if "." not in name]
        inside = [name for name in known if name.startswith(f"{section}.")]
        every = {*known, *(name for part in (*BESIDE, *SECTIONS) for name in options(part))}
        alike = sorted((name for name in every if name.rpartition(".")[2] == key), key=lambda name: name.count("."))
        raise ValueError(unknown("option", key, inside or alike or whole))


def sentence(error: Exception) -> str:
    """What is wrong, without Hydra's advice where an option is not there, or its frame around what a class refuses."""
    if isinstance(error, InstantiationException) and isinstance(error.__cause__, ValueError):
        return str(error.__cause__)
    if several := re.match(r"Ambiguous value for argument '([^']+)'", str(error)):
        return f"{several[1]}: several values are a sweep, which -m runs; as one value they stand in quotes or brackets"
    lost = re.match(
        r"In '[^']+': Could not find '(.+)/([^/']+)'\s+Available options in '\1':\n((?:\t.*\n)+)", str(error)
    )
    if lost:
        return unknown(lost[1], lost[2], lost[3].split())
    if not (found := re.match(r"Could not override '([^']+)'\.\nTo append to your config use \+(.*)", str(error))):
        return str(error).partition("\n\nConfig search path:")[0]
    key, written = found.groups()
    try:
        check_names(key)
    except ValueError as other:
        return str(other)
    return f'there is no option "{key}" in what was chosen; +{written} adds it, if something takes it'


@cache
def options(folder: str) -> dict[str, bool]:
    """The options of all yamls in a folder of `conf`, and whether they hold further ones."""
    nested, section = folder not in (".", *GLOBAL), f"{folder}."
    found = {folder: True} if nested else {}
    for path in yamls(folder).values() if folder != "." else [CONF / "config.yaml"]:
        plain: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        plain = {name: value for name, value in plain.items() if name not in ("defaults", "hydra")}
        found |= dict(_flat(plain, section if nested else ""))
        if "${" not in (target := str(plain.get("_target_", "${"))):
            found |= {section + name: False for name in _hints(hydra.utils.get_method(target), folder)} | found
    if folder in SECTIONS:
        found = {section + name: False for name in _hints(SECTIONS[folder][0], folder)} | found
    if folder == ".":
        found |= {path.name: True for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"}
    return found


def _flat(config: Mapping[str, Any], before: str) -> Iterator[tuple[str, bool]]:
    for name, value in config.items():
        yield f"{before}{name}", bool(isinstance(value, Mapping) and value)
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
