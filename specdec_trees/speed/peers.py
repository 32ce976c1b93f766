"""Our loop beside transformers' generate and assisted generation, and llama.cpp, in one run: `make bench-peers`.

Greedy decoding of the same prompts. Each prompt of a round meets the arms in a random order of its own, so that a
machine whose speed drifts favours none. Ratios are in pairs over the prompts; the seconds of each are kept.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import torch
from hydra import compose, initialize_config_dir
from tqdm import tqdm

from specdec_core import generate
from specdec_core.engine import Step
from specdec_core.models import CausalLM, Pair
from specdec_core.models.graphs import COMPILE, EAGER, PACKED, Graphs, usable
from specdec_core.models.packed import Packed
from specdec_trees.artifacts.definitions import drafter_label
from specdec_trees.artifacts.tables import ABSENT, Table, frame, interval, number, percent, to_markdown
from specdec_trees.configs.cells import Cell, cell_of, dataset_of, runtime_of
from specdec_trees.locations import CONF
from specdec_trees.lossless import rule
from specdec_trees.measure import pairs, provenance, threads
from specdec_trees.measure.bandwidth import (
    CACHED_BYTES,
    bytes_per_token,
    copy_bytes_per_s,
    read_bytes_per_s,
    synchronise,
)
from specdec_trees.measure.measurement import first_prompts
from specdec_trees.measure.neutral import neutral
from specdec_trees.measure.runner import SENTENCES
from specdec_trees.prompts import datasets
from specdec_trees.run import check_choices
from specdec_trees.speed import peer_ratios
from specdec_trees.speed.overhead import share_outside
from specdec_trees.speed.peer_ratios import ratio

SMALL = [f"opt_tree drafter.n={n} drafter.delta=0.2" for n in (3, 7)]
"""Trees for CPUs: with the root as many tokens as a graph has."""
DRAFTERS = ("autoregressive", "chain4", *SMALL, "opt_tree", "prompt_lookup")
BASE = "transformers generate"
ASSISTED: Mapping[str, dict[str, object]] = {
    "transformers assisted, 4 tokens": {
        "num_assistant_tokens": 4,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    },
    "transformers assisted, up to 20 tokens, confidence 0.4": {
        "num_assistant_tokens": 20,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.4,
    },
}
"""Settings of the assistant's generation config; the second is the library's default."""
COLUMNS = ("Arm", "tokens/s", "ratio", "of the limit", "MAL", "target ms", "draft ms", "outside forwards", "identical")
LEGEND = {
    "tokens/s": "new tokens of all prompts and rounds divided by the seconds of whole calls, prefill included",
    "ratio": f"tokens/s divided by {BASE}'s on the same prompts, in brackets the interval, paired over prompts",
    "of the limit": "tokens/s, prefill left out, times the bytes that an autoregressive decoder reads for a token, "
    "divided by the memory's read bandwidth; above 100% only with several tokens a forward",
    "MAL": "mean acceptance length: tokens accepted per decoding step, the target's own counted; of our loop alone",
    "target ms": "milliseconds of a step in the target's forward, mean; of our loop alone",
    "draft ms": "the same in all forwards of the draft",
    "outside forwards": "share of the decoding time of our loop that is in no forward of target or draft",
    "identical": f"share of the first round's outputs that are {BASE}'s, token for token; in 16 bits ties may differ",
}


@dataclass(slots=True)
class Arm:
    """One way to decode: prompt ids to new ids."""

    name: str
    run: Callable[[list[int]], list[int]]
    drafter: str = ""
    """What drafts in our loop; "" in another's."""
    graphs: str = EAGER
    """How forwards run."""
    same_arithmetic: bool = True
    """Whether it reads the target's own weights, so that its outputs and the bytes that it reads are to be compared."""
    seconds: list[list[float]] = field(default_factory=list)
    """By round and prompt; so are `tokens`."""
    tokens: list[list[int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    """Of the first round."""
    steps: list[Step] = field(default_factory=list)
    """Decoding steps of all rounds, where they are known."""

    def mean(self, name: str, unit: float = 1.0) -> float | None:
        """Of a field of the steps, times `unit`; None where they are not known."""
        return unit * fmean(getattr(step, name) for step in self.steps) if self.steps else None

    def rows(self, prompt_ids: Sequence[str]) -> Iterator[tuple[object, ...]]:
        """Of every round and prompt, see `peer_ratios.COLUMNS`."""
        for turn, (tokens, seconds) in enumerate(zip(self.tokens, self.seconds, strict=True)):
            for prompt_id, count, time_s in zip(prompt_ids, tokens, seconds, strict=True):
                yield self.name, self.drafter, self.graphs if self.drafter else "", prompt_id, turn, count, time_s


class Forwards:
    """How the forwards of a pair run, which may be chosen anew before each prompt."""

    def __init__(self, pair: Pair, ways: Sequence[str], *, whole: bool) -> None:
        """`ways`: of `GRAPHS`. LoadError where one cannot run."""
        self._models, configs = pair.models, [model.config for model in pair.models]
        self.ways = [usable(how, pair.target.attention, pair.target.device, configs, whole=whole) for how in ways]
        self.graphs = [Graphs(model) for model in self._models] if COMPILE in self.ways else []
        self._packed = Packed(pair.modules) if PACKED in self.ways else None

    def choose(self, how: str) -> None:
        """One of `ways`."""
        for model in self._models:
            model.graphs = next((one for one in self.graphs if one.lm is model and how == COMPILE), None)
        if self._packed:
            self._packed.use(how == PACKED)


def ours(cell: Cell, pair: Pair, new: int, how: str = EAGER) -> Arm:
    """A cell's drafter in our loop."""
    name, drafter = drafter_label(cell.method, cell.drafter_params), cell.build_drafter(pair.draft)

    def run(ids: list[int]) -> list[int]:
        done = generate(pair.target, drafter, rule(drafter), ids, max_new_tokens=new)
        arm.steps += done.steps
        return done.tokens

    arm = Arm(f"ours, {name}" if how == EAGER else f"ours, {name}, {how}", run, name, how)
    return arm


def generating(pair: Pair, name: str, new: int, **options: object) -> Arm:
    """Transformers' `generate`, greedy, with the stop tokens that ours has and nothing else of its config."""

    def run(ids: list[int]) -> list[int]:
        pair.target.keep_hidden = ()  # of an EAGLE head's run before
        tokens = torch.tensor([ids], device=pair.target.device)
        with neutral(pair):
            out = pair.target.model.generate(
                tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, **options
            )
        return out[0, len(ids) :].tolist()

    return Arm(name, run)


def stock(pair: Pair, new: int) -> Iterator[Arm]:
    """Transformers' caches, its prompt lookup, and its assisted generation where the draft can assist."""
    yield generating(pair, BASE, new)
    compiled = "" if pair.target.device.type == "cpu" else ", compiled"
    yield generating(pair, f"{BASE}, static cache{compiled}", new, cache_implementation="static")
    lookup = {"prompt_lookup_num_tokens": 10, "max_matching_ngram_size": 3}
    yield generating(pair, "transformers prompt lookup, n = 10", new, **lookup)
    if can_assist(pair):
        assert isinstance(pair.draft, CausalLM)
        for name, settings in ASSISTED.items():
            arm = generating(pair, name, new, assistant_model=pair.draft.model)
            yield Arm(name, _with(pair.draft.model.generation_config, settings, arm.run))


def can_assist(pair: Pair) -> bool:
    """Whether the draft is a model of the target's own tokens, as assisted generation wants it."""
    rows = [model.config.vocab_size for model in (pair.target, pair.draft) if isinstance(model, CausalLM)]
    return len(rows) == 2 and rows[0] == rows[1]


def _with(
    config: object, settings: Mapping[str, object], run: Callable[[list[int]], list[int]]
) -> Callable[[list[int]], list[int]]:
    def configured(ids: list[int]) -> list[int]:
        before = {key: getattr(config, key) for key in settings}
        try:
            for key, value in settings.items():
                setattr(config, key, value)
            return run(ids)
        finally:
            for key, value in before.items():
                setattr(config, key, value)

    return configured


def llama_cpp(path: Path, pair: Pair, longest: int, new: int) -> Arm:
    """llama.cpp on a GGUF, through its Python binding; ValueError without the binding or with another vocabulary."""
    if not find_spec("llama_cpp"):
        raise ValueError("--gguf needs llama.cpp's Python binding: pip install llama-cpp-python")
    layers, cores = -1 if pair.target.device.type == "cuda" else 0, torch.get_num_threads()
    model = import_module("llama_cpp").Llama(
        str(path), n_ctx=longest + new, n_gpu_layers=layers, n_threads=cores, n_threads_batch=cores, verbose=False
    )
    if model.n_vocab() != pair.target.vocab_size:
        raise ValueError(f"{path} has {model.n_vocab()} tokens, the target {pair.target.vocab_size}")

    def run(ids: list[int]) -> list[int]:
        model.reset()
        found: list[int] = []
        for token in model.generate(ids, temp=0.0, repeat_penalty=1.0):
            found.append(token)
            if len(found) == new or token in pair.eos_token_ids:
                break
        return found

    return Arm(f"llama.cpp, {path.name}", run, same_arithmetic=False)


def timed(run: Callable[[list[int]], list[int]], ids: list[int], device: torch.device) -> tuple[float, list[int]]:
    """Seconds of a call, and what it gave."""
    synchronise(device)
    start = time.perf_counter()
    found = run(ids)
    synchronise(device)
    return time.perf_counter() - start, found


def warm_up(arms: Sequence[Arm], choose: Callable[[str], None], prompts: Sequence[list[int]]) -> None:
    """Two calls of every arm on the longest prompt, which are not counted; `choose` is told how its forwards run."""
    for arm in arms:
        choose(arm.graphs)
        for _ in range(2):
            arm.run(max(prompts, key=len))
        arm.steps.clear()


def take_turns(
    arms: Sequence[Arm], choose: Callable[[str], None], prompts: Sequence[list[int]], rounds: int, device: torch.device
) -> None:
    """Fill the arms' seconds, tokens and outputs."""
    for turn in tqdm(range(rounds), desc="rounds"):
        for arm in arms:
            arm.seconds.append([])
            arm.tokens.append([])
        for at, ids in enumerate(prompts):
            for arm in random.Random(f"{turn} {at}").sample(arms, len(arms)):
                choose(arm.graphs)
                seconds, found = timed(arm.run, ids, device)
                arm.seconds[-1].append(seconds)
                arm.tokens[-1].append(len(found))
                if not turn:
                    arm.outputs.append(found)


def prefills(pair: Pair, prompts: Sequence[list[int]]) -> list[float]:
    """Seconds of `generate` for a single token, the least of three, by prompt."""
    run = generating(pair, "", 1).run
    return [min(timed(run, ids, pair.target.device)[0] for _ in range(3)) for ids in prompts]


def rows_of(arms: Sequence[Arm], prompt_ids: Sequence[str]) -> pd.DataFrame:
    """The tokens and seconds of every arm, prompt and round."""
    found = [row for arm in arms for row in arm.rows(prompt_ids)]
    return pd.DataFrame(found, columns=list(peer_ratios.COLUMNS))


def table(
    arms: Sequence[Arm],
    timed_rows: pd.DataFrame,
    prefill_s: Sequence[float],
    limit: float | None,
    title: str,
    notes: tuple[str, ...],
) -> Table:
    """A row for every arm; `limit`, in tokens/s, is of autoregressive decoding without prefill."""
    base = next(arm for arm in arms if arm.name == BASE)
    rows = []
    for arm in arms:
        same = [mine == other for mine, other in zip(arm.outputs, base.outputs, strict=True)]
        decoding = np.sum(np.array(arm.tokens) - 1) / np.sum(np.array(arm.seconds) - np.array(prefill_s))
        row = {
            "Arm": arm.name,
            "tokens/s": number(float(np.sum(arm.tokens) / np.sum(arm.seconds)), 1),
            "ratio": interval(ratio(timed_rows, arm.name, BASE)),
            "of the limit": f"{decoding / limit:.0%}" if limit and arm.same_arithmetic else ABSENT,
            "MAL": number(arm.mean("acceptance_length")),
            "target ms": number(arm.mean("score_s", 1e3), 1),
            "draft ms": number(arm.mean("draft_s", 1e3), 1),
            "outside forwards": percent(share_outside(arm.steps) if arm.steps else None),
            "identical": percent(float(np.mean(same)) if arm.same_arithmetic else None),
        }
        rows.append(row)
    return Table("peers", title, frame(rows, COLUMNS), notes, LEGEND)


def measured(args: argparse.Namespace) -> tuple[list[Table], pd.DataFrame]:
    """All arms on the prompts that were asked for: the tables, and the rows behind their ratios."""
    torch.set_num_threads(threads.choose())
    with initialize_config_dir(str(CONF), version_base="1.3"):
        choices = [f"pair={args.pair}", f"dataset={args.dataset}"]
        configs = {name: compose("config", [*choices, *f"drafter={name}".split()]) for name in args.drafters}
    cells = [cell_of(config) for config in configs.values()]
    spec, config = cells[0].pair, configs[args.drafters[0]]
    pair = pairs.loaded(spec, runtime_of(config))
    device = torch.device(pair.target.device)
    conversations = datasets.load(dataset_of(config), data_dir=args.data_dir, limit=args.limit)
    prompts = first_prompts(pair, spec.template, dataset_of(config), conversations)
    whole = not any(model and (model.offload or model.bits) for model in (spec.target, spec.draft))
    forwards = Forwards(pair, list(dict.fromkeys((EAGER, *args.graphs))), whole=whole)
    arms = [ours(cell, pair, args.new, how) for how in forwards.ways for cell in cells]
    arms += stock(pair, args.new)
    if args.gguf:
        arms.append(llama_cpp(args.gguf, pair, max(map(len, prompts)), args.new))
    warm_up(arms, forwards.choose, prompts)
    for one in forwards.graphs:
        one.sealed = True
    bandwidth, before = read_bytes_per_s(device), provenance.cpu_times()
    take_turns(arms, forwards.choose, prompts, args.rounds, device)
    forwards.choose(EAGER)
    load, bandwidth = provenance.other_load(before, provenance.cpu_times()), max(bandwidth, read_bytes_per_s(device))
    tokens = np.mean(next(arm for arm in arms if arm.name == BASE).tokens, axis=0)
    context = round(float(np.sum(tokens * ([*map(len, prompts)] + tokens / 2)) / np.sum(tokens)))
    size = bytes_per_token(pair, context)
    known = size > CACHED_BYTES and not spec.target.offload
    origin = provenance.collect(str(device), str(pair.target.dtype).removeprefix("torch."), pair.target.attention)
    notes = (
        f"{len(prompts)} prompts, up to {args.new} new tokens, {args.rounds} rounds; {origin['dtype']} on "
        f"{origin['device_name']}, {origin['num_threads']} threads ({origin['wait_policy'] or 'waiting by default'}), "
        f"torch {origin['torch_version']}, transformers {origin['transformers_version']}, revision "
        f"{str(origin['git_revision'])[:12]}. Other processes kept {number(load, 1)} cores busy.",
        f"A token reads {size / 1e9:.3g} GB. With the same threads memory was read at {bandwidth / 1e9:.3g} GB/s, and "
        f"copied at {copy_bytes_per_s(device) / 1e9:.3g} GB/s (bytes read and written).",
        *["Weights this small may stay in a cache: no limit is given."] * (size <= CACHED_BYTES),
        *["The draft is no model of the target's tokens: assisted generation cannot use it."] * (not can_assist(pair)),
        "Ours runs in torch's inference mode and keeps a record of every step; generate runs as its users call it.",
        *(f"{'Target' if one.lm is pair.target else 'Draft'}: {one}." for one in forwards.graphs),
        *["llama.cpp reads the GGUF's own quantised weights."] * bool(args.gguf),
    )
    title = f"{spec.name}, {args.dataset}, greedy: our loop and others"
    rows = rows_of(arms, [conversation.id for conversation in conversations])
    summary = table(arms, rows, prefills(pair, prompts), bandwidth / size if known else None, title, notes)
    return [summary, peer_ratios.table(rows, f"{spec.name}, {args.dataset}, greedy: ratios of tokens/s")], rows


def main() -> None:
    """Print the table, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pair", default="tiny", help="of conf/pair")
    parser.add_argument("--dataset", default="mini", help="of conf/dataset")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--drafters", nargs="+", default=DRAFTERS, help='of conf/drafter; "opt_tree drafter.n=7" too')
    parser.add_argument("--limit", type=int, default=20, help="prompts")
    parser.add_argument("--new", type=int, default=128, help="new tokens per prompt")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--graphs", nargs="+", choices=(EAGER, PACKED, COMPILE), default=[EAGER], help="ours so too, compiled untimed"
    )
    parser.add_argument("--gguf", type=Path, help="a GGUF of the target, for llama.cpp")
    parser.add_argument("--out", type=Path, help="a folder for the tables, and peers_prompts.csv")
    args = parser.parse_args()
    check_choices([f"pair={args.pair}", *(word for name in args.drafters for word in f"drafter={name}".split())])
    tables, rows = measured(args)
    print(*map(to_markdown, tables), sep="\n")
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for one in tables:
            one.write(args.out)
        rows.to_csv(args.out / "peers_prompts.csv", index=False)


if __name__ == "__main__":
    try:
        main()
    except SENTENCES as refusal:
        sys.exit(str(refusal))
