"""Greedy outputs of every drafter against transformers' own `generate`, counted: `make lossless DATA_DIR=folder`.

`ARGS="--drafters chain4 opt_tree"` counts those alone.

The reference is not our autoregressive loop but the library's, with its own cache and masks. An output that differs is
listed with the target's top-2 logit gap at the first difference: a gap near rounding is a tie broken differently.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from hydra import compose, initialize_config_dir
from tqdm import tqdm

from specdec_core import Sampling, generate
from specdec_core.checks import check_lossless
from specdec_core.drafters import Drafter
from specdec_core.models import Pair
from specdec_core.verifiers import Greedy, LongestSubtree, Verifier
from specdec_trees.configs import variants
from specdec_trees.configs.cells import cell_of, dataset_of, runtime_of
from specdec_trees.locations import CONF
from specdec_trees.measure import pairs
from specdec_trees.measure.audit import divergence
from specdec_trees.measure.measurement import first_prompts
from specdec_trees.measure.neutral import neutral
from specdec_trees.measure.runner import SENTENCES
from specdec_trees.prompts import datasets
from specdec_trees.run import check_choices

CALIBRATION = ("dataset.part=evaluation", "calibration.acceptance.prompts=4", "calibration.latency.repeats=3")
"""Which tree Sequoia draws is no matter here."""
OF_A_TABLE = {"sequoia_printed"}
"""Drafters whose tree is what an experiment's table prints; `sequoia` stands for them."""
DATASETS = ("mini", "mt_bench", "gsm8k", "c4", "cnn_dm", "xsum")


def reference(pair: Pair, prompt: list[int], new: int) -> list[int]:
    """The greedy output of transformers' own generate, without penalties and bans of the model's generation config."""
    tokens = torch.tensor([prompt], device=pair.target.device)
    with neutral(pair):
        out = pair.target.model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new)
    return out[0, len(prompt) :].tolist()


def rule(drafter: Drafter) -> Verifier:
    """The greedy rule that a drafter's trees call for."""
    return LongestSubtree() if drafter.virtual_root else Greedy()


def lossless(drafter: Drafter) -> bool:
    """Whether greedy outputs must be the target's own."""
    return check_lossless(drafter, rule(drafter), Sampling(), allow_lossy=True)


def main() -> None:
    """Print a table of identical outputs by dataset and drafter; exit status 1 if any differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pair", default="tiny", help="of conf/pair")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--drafters", nargs="+", help="of conf/drafter and its variants (default: all)")
    parser.add_argument("--limit", type=int, default=40, help="prompts per dataset")
    parser.add_argument("--new", type=int, default=32, help="new tokens per prompt")
    args = parser.parse_args()
    check_choices([f"pair={args.pair}", *(f"drafter={name}" for name in args.drafters or ())])
    data, limit = args.data_dir, args.limit
    names = DATASETS if data else DATASETS[:1]
    drafters = args.drafters or sorted({*variants.choices("drafter")} - OF_A_TABLE)
    cells, prompts = {}, {}
    with initialize_config_dir(str(CONF), version_base="1.3"), TemporaryDirectory() as folder:
        for name in drafters:
            choices = [f"pair={args.pair}", f"drafter={name}", "runtime.dtype=float32", f"results_dir={folder}"]
            cells[name] = cell_of(cfg := compose("config", [*choices, *CALIBRATION]))
        pair = pairs.loaded(cells[drafters[0]].pair, runtime_of(cfg))
        for d in names:
            spec = dataset_of(compose("config", [f"dataset={d}"]))
            texts = datasets.load(spec, data_dir=data, limit=limit)
            prompts[d] = first_prompts(pair, cells[drafters[0]].pair.template, spec, texts)
    references = {d: [reference(pair, prompt, args.new) for prompt in tqdm(prompts[d], desc=d)] for d in names}
    total = sum(map(len, prompts.values()))
    print(f"\nGreedy float32 outputs identical to transformers' generate: {total} prompts, {args.new} new tokens\n")
    print(f"{'drafter':<24}" + "".join(f"{d:>12}" for d in names))
    differing, counted = 0, 0
    for name in drafters:
        drafter, counts = cells[name].build_drafter(pair.draft), []
        if not lossless(drafter):
            print(f"{name:<24}   its trees start from several tokens of the target's: not lossless, not counted")
            continue
        counted += total
        for d in names:
            same = [
                _identical(pair, drafter, prompt, expected, args.new)
                for prompt, expected in zip(prompts[d], references[d], strict=True)
            ]
            counts.append(f"{sum(same)}/{len(same)}")
            differing += len(same) - sum(same)
        print(f"{name:<24}" + "".join(f"{count:>12}" for count in counts), flush=True)
    print(f"\n{differing} of {counted} outputs differ")
    sys.exit(bool(differing))


def _identical(pair: Pair, drafter: Drafter, prompt: list[int], expected: list[int], new: int) -> bool:
    done = generate(pair.target, drafter, rule(drafter), prompt, max_new_tokens=new)
    parted = divergence(pair.target, prompt, done.tokens, expected)
    if parted:
        ours, theirs = (tokens[parted.at : parted.at + 3] for tokens in (done.tokens, expected))
        print(f"  differs at token {parted.at}: {ours} for {theirs}, {parted.gap:.2e} below the best logit")
    return parted is None


if __name__ == "__main__":
    try:
        main()
    except SENTENCES as refusal:
        sys.exit(str(refusal))
