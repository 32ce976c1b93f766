"""Our loop beside transformers' generate and assisted generation, and llama.cpp, in one run: `make bench-peers`.

Greedy decoding of the same prompts, prefill included. The arms take turns, in another order for each prompt and round,
so that a machine whose speed drifts favours none. Ratios are to transformers' `generate` on the same prompts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from numpy.typing import NDArray
from tqdm import tqdm

from bench.artifacts.definitions import drafter_label
from bench.artifacts.tables import ABSENT, Table, frame, interval, number, percent, to_markdown
from bench.configs.cells import cell_of, dataset_of, runtime_of
from bench.configs.options import CONF
from bench.lossless import rule
from bench.measure import pairs, provenance
from bench.measure.bandwidth import bytes_per_token, read_bytes_per_s
from bench.measure.measurement import eos_token_ids, first_prompts
from bench.measure.runner import SENTENCES
from bench.prompts import datasets
from bench.run import check_choices
from bench.statistics.intervals import Interval, of_sums
from specdec_core import generate
from specdec_core.drafters import Drafter
from specdec_core.models import CausalLM, Pair

DRAFTERS = ("autoregressive", "chain4", "opt_tree", "prompt_lookup")
BASE = "transformers generate"
ASSISTED: Mapping[str, dict[str, object]] = {
    "transformers assisted, 4 tokens": {
        "num_assistant_tokens": 4,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    },
    "transformers assisted, dynamic": {
        "num_assistant_tokens": 20,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.4,
    },
}
"""Settings of the assistant's generation config; the second is the library's default."""
COLUMNS = ("Arm", "tokens/s", "of the limit", "ratio", "MAL", "identical")
LEGEND = {
    "tokens/s": "new tokens of all prompts and rounds over seconds of whole calls, prefill included",
    "of the limit": "tokens/s over those of an autoregressive decoder that reads memory as fast as it can be read: "
    "every weight once a token, keys and values of the mean context. Only several tokens a forward can be above 100%",
    "ratio": f"tokens/s over {BASE}'s on the same prompts and rounds, in brackets the 95% interval over prompts",
    "MAL": "new tokens per decoding step; not known of other libraries",
    "identical": f"share of outputs equal to {BASE}'s, token for token",
}


@dataclass(slots=True)
class Arm:
    """One way to decode: prompt ids to new ids. `steps` counts decoding steps where they are known."""

    name: str
    run: Callable[[list[int]], list[int]]
    same_arithmetic: bool = True
    """Whether its outputs are to be compared."""
    seconds: list[list[float]] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    outputs: list[list[int]] = field(default_factory=list)
    steps: int = 0
    decoded: int = 0


def ours(name: str, pair: Pair, drafter: Drafter, new: int) -> Arm:
    """A drafter in our loop."""

    def run(ids: list[int]) -> list[int]:
        done = generate(pair.target, drafter, rule(drafter), ids, max_new_tokens=new, eos_token_ids=eos_token_ids(pair))
        arm.steps += len(done.steps)
        arm.decoded += sum(step.acceptance_length for step in done.steps)
        return done.tokens

    arm = Arm(f"ours, {name}", run)
    return arm


def stock(pair: Pair, new: int) -> Iterator[Arm]:
    """`generate` of transformers with its caches, and its assisted generation where the draft can assist."""

    def arm(name: str, **options: object) -> Arm:
        def run(ids: list[int]) -> list[int]:
            tokens = torch.tensor([ids], device=pair.target.device)
            out = pair.target.model.generate(
                tokens,
                attention_mask=torch.ones_like(tokens),
                max_new_tokens=new,
                do_sample=False,
                pad_token_id=pair.tokenizer.eos_token_id,
                **options,
            )
            return out[0, len(ids) :].tolist()

        return Arm(name, run)

    yield arm(BASE)
    yield arm(f"{BASE}, static cache", cache_implementation="static")
    yield arm("transformers prompt lookup, 10 tokens", prompt_lookup_num_tokens=10)
    if isinstance(pair.draft, CausalLM) and pair.draft.vocab_size == pair.target.vocab_size:
        assistant = pair.draft.model
        for name, settings in ASSISTED.items():
            assisted = arm(name, assistant_model=assistant)
            yield Arm(name, _with(assistant.generation_config, settings, assisted.run))


def _with(
    config: object, settings: Mapping[str, object], run: Callable[[list[int]], list[int]]
) -> Callable[[list[int]], list[int]]:
    def configured(ids: list[int]) -> list[int]:
        for key, value in settings.items():
            setattr(config, key, value)
        return run(ids)

    return configured


def llama_cpp(path: Path, new: int, threads: int) -> Arm:
    """llama.cpp on a GGUF through its Python binding: another arithmetic, so its outputs are not compared."""
    model = import_module("llama_cpp").Llama(
        str(path), n_ctx=4096, n_threads=threads, n_threads_batch=threads, verbose=False
    )

    def run(ids: list[int]) -> list[int]:
        model.reset()
        found: list[int] = []
        for token in model.generate(ids, temp=0.0, repeat_penalty=1.0):
            found.append(token)
            if len(found) == new or token == model.token_eos():
                break
        return found

    return Arm(f"llama.cpp, {path.name}", run, same_arithmetic=False)


def take_turns(arms: Sequence[Arm], prompts: Sequence[list[int]], rounds: int) -> None:
    """Fill the arms' seconds and tokens, [rounds][prompts], after one prompt each that is not counted."""
    for arm in arms:
        arm.run(prompts[0])
        arm.steps = arm.decoded = 0
    for number_of in tqdm(range(rounds), desc="rounds"):
        for arm in arms:
            arm.seconds.append([])
            arm.tokens.append([])
        for at, ids in enumerate(prompts):
            first = (number_of + at) % len(arms)
            for arm in (*arms[first:], *arms[:first]):
                start = time.perf_counter()
                found = arm.run(ids)
                arm.seconds[-1].append(time.perf_counter() - start)
                arm.tokens[-1].append(len(found))
                if not number_of:
                    arm.outputs.append(found)


def ratio(arm: Arm, base: Arm) -> Interval:
    """Tokens/s of both over all rounds, resampling prompts."""
    sums = np.column_stack([np.sum(part, axis=0) for one in (arm, base) for part in (one.tokens, one.seconds)])

    def statistic(total: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((total[0] / total[1]) / (total[2] / total[3]))

    return of_sums(sums.astype(float), statistic)


def table(arms: Sequence[Arm], limit: float, title: str, notes: tuple[str, ...]) -> Table:
    """A row for every arm; `limit` is in tokens/s."""
    base = next(arm for arm in arms if arm.name == BASE)
    rows = []
    for arm in arms:
        same = [mine == other for mine, other in zip(arm.outputs, base.outputs, strict=True)]
        speed = float(np.sum(arm.tokens) / np.sum(arm.seconds))
        row = {
            "Arm": arm.name,
            "tokens/s": number(speed, 1),
            "of the limit": percent(speed / limit) if arm.same_arithmetic else ABSENT,
            "ratio": interval(ratio(arm, base)),
            "MAL": number(arm.decoded / arm.steps if arm.steps else None),
            "identical": percent(float(np.mean(same)) if arm.same_arithmetic else None),
        }
        rows.append(row)
    return Table("peers", title, frame(rows, COLUMNS), notes, LEGEND)


def measured(args: argparse.Namespace) -> Table:
    """All arms on the prompts that were asked for."""
    data = [f"dataset={args.dataset}"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cells = {
            name: cell_of(cfg := compose("config", [f"pair={args.pair}", f"drafter={name}", *data]))
            for name in args.drafters
        }
    cell = cells[args.drafters[0]]
    pair = pairs.loaded(cell.pair, runtime_of(cfg))
    conversations = datasets.load(dataset_of(cfg), data_dir=args.data_dir, limit=args.limit)
    prompts = first_prompts(pair, cell.pair.template, dataset_of(cfg), conversations)
    arms = [
        ours(drafter_label(one.method, one.drafter_params), pair, one.build_drafter(pair.draft), args.new)
        for one in cells.values()
    ]
    arms += stock(pair, args.new)
    if args.gguf and find_spec("llama_cpp"):
        arms.append(llama_cpp(args.gguf, args.new, torch.get_num_threads()))
    take_turns(arms, prompts, args.rounds)
    base = next(arm for arm in arms if arm.name == BASE)
    context = float(np.mean([len(ids) for ids in prompts]) + np.mean(base.tokens) / 2)
    size, bandwidth = bytes_per_token(pair, round(context)), read_bytes_per_s(pair.target.device)
    origin = provenance.collect(str(pair.target.device), str(pair.target.dtype).removeprefix("torch."), "sdpa")
    title = f"{cell.pair.name}, {args.dataset}, greedy: our loop and others"
    notes = (
        f"{len(prompts)} prompts, {args.new} new tokens, {args.rounds} rounds; {origin['dtype']} on "
        f"{origin['device_name']}, {origin['num_threads']} threads, torch {origin['torch_version']}, transformers "
        f"{origin['transformers_version']}, revision {str(origin['git_revision'])[:12]}.",
        f"A token reads {size / 1e9:.3g} GB, and memory was read at {bandwidth / 1e9:.3g} GB/s.",
        *["llama.cpp reads the GGUF's own quantised weights."] * (not arms[-1].same_arithmetic),
    )
    return table(arms, bandwidth / size, title, notes)


def main() -> None:
    """Print the table, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pair", default="tiny", help="of conf/pair")
    parser.add_argument("--dataset", default="mini", help="of conf/dataset")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--drafters", nargs="+", default=DRAFTERS, help="of conf/drafter")
    parser.add_argument("--limit", type=int, default=6, help="prompts")
    parser.add_argument("--new", type=int, default=128, help="new tokens per prompt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gguf", type=Path, help="for llama.cpp, if llama-cpp-python is installed")
    parser.add_argument("--out", type=Path, help="a folder for peers.md, .csv and .tex")
    args = parser.parse_args()
    check_choices([f"pair={args.pair}", *(f"drafter={name}" for name in args.drafters)])
    found = measured(args)
    print(to_markdown(found))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        found.write(args.out)


if __name__ == "__main__":
    try:
        main()
    except SENTENCES as refusal:
        sys.exit(str(refusal))
