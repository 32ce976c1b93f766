"""Decision models, trained once and kept in `<results_dir>/calibration/decision`, and shown where they are used."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from specdec_core.errors import PairError
from specdec_core.models import Pair
from specdec_core.models.decision import KINDS, DecisionModel
from specdec_core.models.ranks import agreed
from specdec_trees.calibrate.decision import prompts as choice
from specdec_trees.calibrate.decision import training as learning
from specdec_trees.calibrate.decision.examples import Examples, Prompt, collect
from specdec_trees.calibrate.decision.prompts import Split
from specdec_trees.calibrate.kept import Setting
from specdec_trees.measure import pairs
from specdec_trees.measure.cell import DecisionPlan
from specdec_trees.measure.measurement import first_prompts
from specdec_trees.measure.once import once
from specdec_trees.measure.provenance import collect as provenance
from specdec_trees.measure.weights import commits
from specdec_trees.prompts.conversations import Conversation
from specdec_trees.prompts.datasets import DatasetSpec
from specdec_trees.results.kept_rows import FOLDER, DecisionRow
from specdec_trees.results.parquet import hidden_name
from specdec_trees.results.store import Store, run_id

log = logging.getLogger(__name__)


def models(setting: Setting, *, decoded: bool = True) -> dict[str, DecisionModel]:
    """Both kinds, trained unless they were; rows of validation tokens go with the experiment that uses them.

    `decoded`: the setting's prompts are to be decoded, so that none of them may be trained on (DatasetError).
    """
    store, experiment = Store(setting.results_dir, FOLDER), Store(setting.results_dir, setting.experiment)
    if setting.pair.draft is None:
        raise PairError("a decision model scores a draft's tokens, but this pair has no draft")
    prompts = _split(setting)
    if decoded:
        check_disjoint(prompts.facts, setting)
    keys = _keys(setting, prompts)
    paths = {kind: _path(store, key) for kind, key in keys.items()}

    def there() -> bool:
        return all(paths[kind].exists() and store.has("decisions", key) for kind, key in keys.items())

    def measure() -> None:
        for kind, (model, rows) in _trained(setting, prompts).items():
            store.write("decisions", keys[kind], [replace(row, run_id=keys[kind]) for row in rows])
            _write_whole(paths[kind], model)
            log.info("%s decision model written to %s", kind, paths[kind])

    def unshown() -> bool:
        return setting.runtime.force or not all(experiment.has("decisions", key) for key in keys.values())

    # cells take what is kept under force too: a model's weights are part of their identity
    once(store, run_id({"keys": keys}), there, measure, force=setting.runtime.force and not decoded)
    if agreed(unshown):
        for key in keys.values():
            experiment.write("decisions", key, _rows(store, key))
    return {kind: read(path) for kind, path in paths.items()}


def summary(setting: Setting) -> str:
    """Train both kinds unless they were, and say how good they are and where they lie."""
    found, store = models(setting, decoded=False), Store(setting.results_dir, FOLDER)
    keys = _keys(setting, _split(setting))
    rows = {kind: _rows(store, key) for kind, key in keys.items()}
    return "\n".join((learning.summary(found, rows), *(f"{kind}: {_path(store, key)}" for kind, key in keys.items())))


def read(path: Path) -> DecisionModel:
    """The model in a file. ValueError says what is wrong with it."""

    def found() -> DecisionModel:
        if not path.is_file():
            raise ValueError(f"there is no decision model {path}; python -m specdec_trees.decision_model trains one")
        return DecisionModel.load(path)

    return agreed(found)


def _path(store: Store, key: str) -> Path:
    """Where a trained model is kept."""
    return store.folder / "decision" / f"{key}.safetensors"


def check_disjoint(facts: Mapping[str, str], setting: Setting) -> None:
    """DatasetError where a prompt of the cell is one that a model with these facts learnt from."""
    choice.check_disjoint(facts, setting.dataset, data_dir=setting.runtime.data_dir, limit=setting.limit)


def _plan(setting: Setting) -> DecisionPlan:
    plan = setting.plan.decision
    new_tokens = min(plan.new_tokens, setting.max_new_tokens)
    return replace(plan, new_tokens=new_tokens, temperature=float(plan.temperature))


def _split(setting: Setting) -> Split:
    plan, data_dir = _plan(setting), setting.runtime.data_dir
    return choice.split(setting.dataset, plan, data_dir=data_dir, limit=setting.limit, seed=setting.seed)


def _source(setting: Setting) -> DatasetSpec:
    """What is learnt from."""
    return setting.plan.decision.dataset or setting.dataset


def _keys(setting: Setting, prompts: Split) -> dict[str, str]:
    """What tells models from others, by kind: the pair, the very prompts and how they are cut, plan, seed."""
    pair = {name: value for name, value in setting.identity["pair"].items() if name != "draft_temperature"}
    given, source = asdict(_plan(setting)), _source(setting)
    plan = {name: value for name, value in given.items() if name not in ("dataset", "prompts", "validation")}
    cut = {name: getattr(source, name) for name in ("mode", "prompt_tokens", "max_prompt_tokens", "frame")}
    config = {"pair": pair, "runtime": setting.identity["runtime"], "prompts": prompts.facts, "cut": cut}
    config |= commits(setting.pair)
    return {kind: run_id(config | {"decision": plan, "kind": kind, "seed": setting.seed}) for kind in KINDS}


def _trained(setting: Setting, prompts: Split) -> dict[str, tuple[DecisionModel, list[DecisionRow]]]:
    """Both kinds from the same examples, and what they say of the validation tokens."""
    pair = pairs.loaded(setting.pair, setting.runtime)
    training, validation = (
        _examples(setting, pair, conversations, what)
        for conversations, what in ((prompts.training, "training"), (prompts.validation, "validation"))
    )
    facts = prompts.facts | _facts(setting, pair, training, validation)
    device, found = (pair.draft or pair.target).device, {}
    for kind in KINDS:
        model = learning.train(kind, training, validation, _plan(setting), seed=setting.seed, device=device)
        model.facts |= facts
        found[kind] = model, learning.rows(model, validation, "")
    return found


def _examples(setting: Setting, pair: Pair, conversations: list[Conversation], what: str) -> Examples:
    tokens = first_prompts(pair, setting.pair.template, _source(setting), conversations)
    return collect(
        pair,
        [Prompt(known.id, ids) for known, ids in zip(conversations, tokens, strict=True)],
        _plan(setting),
        seed=setting.seed,
        eos_token_ids=pair.eos_token_ids,
        progress=setting.runtime.progress,
        what=what,
    )


def _facts(setting: Setting, pair: Pair, training: Examples, validation: Examples) -> dict[str, str]:
    """Where a model comes from, as words."""
    runtime, target, draft, plan = setting.runtime, setting.pair.target, setting.pair.draft, _plan(setting)
    device = provenance(str(pair.target.device), runtime.dtype, runtime.attention, runtime.placement)["device_name"]
    found = {
        "pair": setting.pair.name,
        "target": target.name,
        "draft": draft.name if draft else "",
        "hidden_size": training.features["hidden"].shape[1],
        "dataset": _source(setting).name,
        "device_name": device,
        "temperature": plan.temperature,
        "new_tokens": plan.new_tokens,
        "width": plan.width,
        "seed": setting.seed,
        "num_prompts": len(set(training.prompt_ids)),
        "num_validation_prompts": len(set(validation.prompt_ids)),
    }
    return {name: str(value) for name, value in found.items()}


def _rows(store: Store, key: str) -> list[DecisionRow]:
    records: Any = agreed(lambda: store.read("decisions", [key])).to_dict("records")
    return [DecisionRow(**row) for row in records]


def _write_whole(path: Path, model: DecisionModel) -> None:
    """Another process finds all of it, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(hidden_name(path.name))
    model.save(part)
    part.replace(path)
