"""`python -m specdec_trees.new pair | dataset | paper`: the yaml of your own models or prompts, or a paper's files.

python -m specdec_trees.new pair --target /models/llama-7b --draft JackFram/llama-68m
python -m specdec_trees.new dataset quiz.jsonl --max-new-tokens 256
python -m specdec_trees.new paper "Short: What It Is About (arXiv:2401.01234)" --name short
"""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from specdec_core.errors import LoadError, SpecdecError
from specdec_core.models import ModelSpec
from specdec_core.models.fetch import fetch_config, fetch_tokenizer
from specdec_core.models.head_formats import read_config
from specdec_core.models.kinds import KINDS, TARGET, kind_of, likely_kind
from specdec_core.models.loading import check_vocabularies
from specdec_trees.configs import variants
from specdec_trees.configs.values import bounded, shown
from specdec_trees.locations import hint, own_conf, yamls
from specdec_trees.names import unknown
from specdec_trees.new_paper import new_paper
from specdec_trees.prompts import templates
from specdec_trees.prompts.conversations import DatasetError, read_jsonl
from specdec_trees.prompts.datasets import MAX_NEW_TOKENS

HUB_ID = r"\w[\w.-]*(/[\w.-]+)?"
DRAFTS = tuple(kind for kind in KINDS if KINDS[kind].own_weights)
"""Kinds of draft that are a folder or hub id of their own."""


def new_pair(
    target: str, draft: str, *, name: str | None = None, template: str | None = None, kind: str | None = None
) -> str:
    """Write `conf/pair/<name>.yaml` and say what to run next; an existing yaml is kept.

    ValueError, LoadError or PairError for a folder without a model, or for tokenizers that differ. What is to come
    from the hub is not looked at.
    """
    kind = kind or _kind_of(draft)
    if kind not in DRAFTS:
        raise ValueError(unknown("kind of draft", kind, DRAFTS))
    template = templates.check(template or _template_of(target))
    models = _model("TARGET", target), _model("DRAFT", draft, kind)
    compared = _check_models(*models)
    name = name or _slug(f"{_last(models[0].id)}_{_last(models[1].id)}")
    ours, theirs = (f"id: {shown(model.id)}, revision: null, gated: false" for model in models)
    path = _write(
        "pair",
        name,
        f"# {_last(models[0].id)} with {_last(models[1].id)}.\n"
        f"name: {shown(name)}\ntarget: {{{ours}}}\ndraft: {{{theirs}, kind: {kind}}}\ntemplate: {template}\n"
        "draft_temperature: 1.0\n",
    )
    found = [f"{role} {_words(model)}" for role, model in zip(("target", "draft"), models, strict=True)]
    make = f"make bench-mtbench PAIR={name} DATA_DIR=folder LIMIT=8"
    command = hint(make, f"specdec reproduce bench/mt_bench pair={name} data_dir=folder limit=8")
    return f"{path} is written: {', '.join(found)}; template {template}; {compared}\nnext: {command}"


def new_dataset(file: str, *, name: str | None = None, max_new_tokens: int = MAX_NEW_TOKENS) -> str:
    """Write `conf/dataset/<name>.yaml` and say what to run next; an existing yaml is kept.

    DatasetError for a line that cannot be read, or a file without any; ValueError for a name that cannot be one.
    """
    source = Path(file).expanduser().resolve()
    conversations = read_jsonl(source)
    if not conversations:
        raise DatasetError(f"{source} has no conversations")
    if max_new_tokens < 1 or not bounded(max_new_tokens):
        raise ValueError(f"MAX_NEW_TOKENS={max_new_tokens}: an answer has at least one token, and fewer than 2^63")
    name, count = name or _slug(source.stem), _count(len(conversations), "conversation")
    path = _write(
        "dataset",
        name,
        f"# {count} of {source.name}.\nname: {shown(name)}\nfile: {shown(str(source))}\n"
        f"max_new_tokens: {max_new_tokens}\n",
    )
    turns = sum(len(found.turns) for found in conversations)
    make = f"make bench-mtbench PAIR=tiny ARGS=dataset={name}"
    command = hint(make, f"specdec reproduce bench/mt_bench pair=tiny dataset={name}")
    return (
        f"{path} is written: {count}, {_count(turns, 'turn')}, at most {max_new_tokens} new tokens a turn\n"
        f"next: specdec run dataset={name} pair=tiny drafter=opt_tree\n"
        f"or, for a table of methods: {command}"
    )


def _kind_of(draft: str) -> str:
    """What a draft seems to be, by its name and a folder's config.json."""
    folder = Path(draft).expanduser()
    return likely_kind(_last(draft), read_config(ModelSpec(id=str(folder))) if folder.is_dir() else {})


def _model(role: str, given: str, kind: str = TARGET) -> ModelSpec:
    """A folder by its absolute path, or a hub id."""
    folder = Path(given).expanduser()
    if folder.is_dir():
        return ModelSpec(id=str(folder.resolve()), kind=kind)
    if folder.is_file():
        raise ValueError(f"{role}={given} is a file; give the folder that holds it")
    if not re.fullmatch(HUB_ID, given):
        raise ValueError(f"{role}={given}: there is no such folder, and a hub id is such as JackFram/llama-68m")
    return ModelSpec(id=given, kind=kind)


def _check_models(target: ModelSpec, draft: ModelSpec) -> str:
    """What is known of the two, in words; their own sentence where a folder holds no model or they do not fit."""
    local = [model for model in (target, draft) if Path(model.id).is_dir()]
    parts = [_parts(model, is_draft=model is draft) for model in local if kind_of(model).whole]
    configs, tokenizers = [config for config, _ in parts], [tokenizer for _, tokenizer in parts]
    if len(local) < 2:
        return "hub ids are checked when they are loaded"
    if not kind_of(draft).whole:
        kind = kind_of(draft)
        kind.read(draft, kind.config(draft, configs[0]), configs[0])
        return "the draft fits the target"
    check_vocabularies(*tokenizers, *(config.vocab_size for config in configs))
    return "their tokenizers agree"


def _parts(model: ModelSpec, *, is_draft: bool) -> tuple[Any, Any]:
    """Config and tokenizer of a folder; LoadError, which asks of a draft whether it is a head."""
    try:
        return fetch_config(model), fetch_tokenizer(model)
    except LoadError as error:
        if not is_draft:
            raise
        heads = ", ".join(kind for kind in DRAFTS if not KINDS[kind].alone)
        raise LoadError(f"{error}; if it is a head, give its KIND={heads}") from error


def _template_of(target: str) -> str:
    """The template of a pair with a target of this name, else its tokenizer's own; plain for a folder that has none."""
    for path in [path for name, path in yamls("pair").items() if "/" not in name]:
        loaded = OmegaConf.load(path)
        if _last(str(OmegaConf.select(loaded, "target.id"))) == _last(target) and "template" in loaded:
            return str(OmegaConf.select(loaded, "template"))
    folder = Path(target).expanduser()
    if not folder.is_dir():
        return templates.OWN  # where it has none either, the first cell says so
    return templates.OWN if fetch_tokenizer(ModelSpec(id=str(folder))).chat_template else "plain"


def _write(group: str, name: str, text: str) -> Path:
    """A new yaml of the user's own `conf`, by its path from here."""
    path = own_conf() / group / f"{name}.yaml"
    if not re.fullmatch(r"\w[\w-]*", name, re.ASCII):
        raise ValueError(
            f'NAME="{name}": a name has letters, digits, _ and, not first, -, since it is a file and an option'
        )
    read = OverridesParser.create().parse_override(f"{group}={name}").value()
    if str(read) != name or not isinstance(read, str | int) or isinstance(read, bool):
        raise ValueError(f'NAME="{name}" is read as {shown(read)} on the command line; give another')
    if name in variants.choices(group):
        raise ValueError(f"there is a {group} {name} already, which is kept; give NAME=another")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    return path.relative_to(Path.cwd())


def _last(model: str) -> str:
    """The last part of a path or hub id."""
    return Path(model).name


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _words(model: ModelSpec) -> str:
    return f"{model.id} ({'folder' if Path(model.id).is_dir() else 'hub id'}, {model.kind})"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def main(arguments: Sequence[str]) -> None:
    """Print what was written and the next command; exit with a sentence where nothing was."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.new", description=(__doc__ or "").splitlines()[0])
    groups = parser.add_subparsers(dest="group", required=True)
    pair = groups.add_parser("pair")
    pair.add_argument("--target", required=True, help="a folder or hub id")
    pair.add_argument("--draft", required=True, help="a folder or hub id")
    pair.add_argument("--template", help=f"of {', '.join(templates.NAMES)}; else that of a pair with this target")
    pair.add_argument(
        "--kind", help=f"of {', '.join(DRAFTS)}; else by words in its name and config.json, else {TARGET}"
    )
    dataset = groups.add_parser("dataset")
    dataset.add_argument("file", help="a JSONL file of conversations")
    dataset.add_argument("--max-new-tokens", type=int, default=MAX_NEW_TOKENS)
    paper = groups.add_parser("paper")
    paper.add_argument("title", help="the full title, with where it is found")
    for one in (pair, dataset, paper):
        one.add_argument("--name", help="of what is written; else made of the models', the file's or the title's")
    given = vars(parser.parse_args(arguments))
    make: dict[str, Callable[..., str]] = {"pair": new_pair, "dataset": new_dataset, "paper": new_paper}
    try:
        written = make[given.pop("group")](**given)
    except (SpecdecError, DatasetError, ValueError, OSError) as error:
        sys.exit(str(error))
    print(written)


if __name__ == "__main__":
    main(sys.argv[1:])
