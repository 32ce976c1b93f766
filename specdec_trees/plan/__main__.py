"""`python -m specdec_trees.plan experiment=opt_tree/table1 [pair=a,b]`: what an experiment needs, before anything runs.

Cells, models and their licences, memory, hours: from configs and kept forward times, without weights or a network.
Without `pair`, or with `pair=papers`, the plan is for the experiment's own pairs; other overrides are taken as
`specdec_trees.run` takes them. Without `experiment` it is a line for every artifact.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from hydra.errors import HydraException

from specdec_trees.calibrate.prices import HOST_BPS, LAUNCH_S, LAUNCHES_PER_LAYER
from specdec_trees.configs.options import sentence
from specdec_trees.measure import runner
from specdec_trees.plan.estimates import SPARE
from specdec_trees.plan.overview import overview
from specdec_trees.plan.planning import ALL_PAPERS, KINDS, Plan, PlannedPair, hours, make, number, times_here
from specdec_trees.plan.times import Times, measured_times
from specdec_trees.run import check_choices

SMALL = 1e9
"""Bytes that fit anywhere."""
HOURS = fill(
    f"""\
All answers as long as they may be; prefills left out. A cell: tokens x (T(1) for the baseline + (T(n + 1) + depth x
D(1)) / MAL); a vector: tokens x (T(1) + D(1)); decision models: tokens x (T(n + 1) + D(1)), their own training left
out. T and D: seconds of a forward of target and draft; n and depth: the tree's nodes and levels; MAL: the paper's for
pair, dataset and temperature, or 1 where it prints none. Measured: forwards that were timed, or steps of runs in the
results; sizes beyond the largest take as long as it. An estimate, for known GPUs alone: a forward takes as long as
reading the weights, those on the host at {HOST_BPS / 1e9:g} GB/s; in eager mode no less than {LAUNCH_S * 1e6:g} us
for each kernel, some {LAUNCHES_PER_LAYER} a layer. Large trees take longer, and so does what is between forwards.""",
    width=116,
)


def describe(plan: Plan) -> Iterator[str]:
    """The lines that are printed."""
    yield from _jobs(plan)
    if not set(KINDS) - {"attention"} & {job.measure for job in plan.jobs}:
        return  # no model is loaded
    yield from _models(plan)
    yield from _memory(plan)
    yield from _hours(plan)


def _jobs(plan: Plan) -> Iterator[str]:
    counts = [_count(len(jobs), words) for kind, words in KINDS.items() if (jobs := plan.of_kind(kind))]
    pairs, most = len(plan.pairs), "" if all(pair.jobs == plan.jobs for pair in plan.pairs) else "at most "
    total = f": {plan.cells} cells in all" if plan.cells else ""
    several = "1 pair" if pairs == 1 else f"each of {pairs} pairs{total}"
    yield f"{plan.name}: {most}{', '.join(counts)} for {several}"
    for key, values in plan.axes.items():
        yield fill(", ".join(values), 110, initial_indent=f"  {key:<22} ", subsequent_indent=25 * " ")
    for what, prompts in dict.fromkeys((job.what, job.prompts) for job in plan.jobs):
        yield f"  {what:<22} {prompts}"


def _models(plan: Plan) -> Iterator[str]:
    whole = [pair.spec for pair in plan.pairs if not pair.spec.planted]
    specs = {spec.id: spec for pair in whole for spec in (pair.target, pair.draft) if spec is not None}
    if specs:
        yield f"\n{'model':<44} {'revision':<10} {'access':<6} licence"
    for name, spec in sorted(specs.items()):
        revision = "a folder" if Path(spec.source).is_dir() else spec.revision or "main"
        licence = spec.licence or "see its page"
        yield f"{name:<44} {revision:<10} {'gated' if spec.gated else 'open':<6} {licence}"
    if len(whole) < len(plan.pairs):
        yield "\nplanted pairs are synthetic: random weights, made where they run; nothing is fetched"
    if any(spec.gated for spec in specs.values()):
        yield "gated: accept the licence at https://huggingface.co/<model>; log in with `hf auth login` to fetch it."


def _memory(plan: Plan) -> Iterator[str]:
    kind = str(plan.dtype).removeprefix("torch.")
    yield f"\n{'GB in ' + kind:<32} {'target':>7} {'draft':>7} {'caches':>7} {'trees':>7} {'total':>7}  enough"
    for pair in plan.pairs:
        memory = pair.memory
        sizes = (memory.target, memory.draft, memory.caches, memory.trees, memory.device)
        count, size = memory.gpus
        enough = f"one GPU of {size} GB" if count == 1 else f"{count} GPUs of {size} GB"
        if memory.device + memory.host < SMALL:
            enough = "any GPU, or none"
        if pair.spec.planted and count > 1:
            enough = f"one GPU of {memory.device * SPARE / 1e9:.0f} GB, or pair.target.offload=true"
        host = f" and {memory.host / 1e9:.0f} GB of the host" if memory.host else ""
        yield f"{pair.spec.name:<32} {' '.join(f'{part / 1e9:>7.2f}' for part in sizes)}  {enough}{host}"
    several = any(pair.memory.gpus[0] > 1 and not pair.spec.planted for pair in plan.pairs)
    yield "All at most. caches: prompt, answer and room for trees; trees: masks, logits, hidden states; enough: with"
    yield f"{SPARE - 1:.0%} to spare" + ("; several GPUs: with runtime.device_map=auto." if several else ".")


def _hours(plan: Plan) -> Iterator[str]:
    yield f"\n{'hours of a pair':<32} {'here':>9}"
    for pair in plan.pairs:
        here, kept = times_here(plan, pair), measured_times(plan.results_dir, pair.spec)
        words = _known(plan, pair, here) if here else _unknown(pair)
        others = (_known(plan, pair, times).strip() for times in kept if not here or times.origin != here.origin)
        yield f"{pair.spec.name:<32} {'; '.join([words, *others])}"
    yield HOURS


def _known(plan: Plan, pair: PlannedPair, times: Times) -> str:
    return f"{number(hours(plan, pair, times)):>9} ({times.origin})"


def _unknown(pair: PlannedPair) -> str:
    return f"no hours: nothing measured here; `specdec latency pair={pair.spec.name}` measures them"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def main() -> None:
    """Print the plan; a sentence and exit status 1 where there is none."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    check_choices([argument for argument in sys.argv[1:] if argument not in [f"pair={name}" for name in ALL_PAPERS]])
    try:
        single = any(argument.startswith("experiment=") for argument in sys.argv[1:])
        for line in describe(make(sys.argv[1:])) if single else overview(sys.argv[1:]):
            print(line, flush=True)
    except BrokenPipeError:
        raise
    except (TypeError, OSError, HydraException, *runner.SENTENCES) as error:
        sys.exit(sentence(error))


if __name__ == "__main__":
    main()
