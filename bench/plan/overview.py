"""A line for every artifact: cells, other measurements, tokens, hours, and how far it is."""

from collections.abc import Iterator, Sequence

from bench import progress
from bench.plan.estimates import AT, Times, measured_times
from bench.plan.planning import Plan, hours, make, number
from bench.report.artifacts import ARTIFACTS

HEADER = (
    f"{'artifact':<24} {'pairs':>5} {'cells':>6} {'others':>7} {'tokens':>12} {AT:>10} {'measured':>9}  results so far"
)
NOTE = f"""\
cells: of all pairs; those that several artifacts have in common are run once. others: measurements beside cells, such
as vectors, forward times, tables of attention, trainings. tokens: new ones of both arms and second passes, if all
answers are as long as they may be. {AT}: hours on a GPU whose forwards take as long as reading the weights at this
speed; small models, large trees and CPUs take longer. measured: hours at the forward times kept in results; – where a
pair has none yet: python -m bench.latency pair=<pair>."""


def overview(arguments: Sequence[str]) -> Iterator[str]:
    """The lines as they come: some twenty seconds for all."""
    yield HEADER
    total = [0, 0, 0, 0.0]
    for name in ARTIFACTS:
        plan = make([f"experiment={name}", *arguments])
        pairs, cells = len(plan.pairs), len(plan.of_kind("cells"))
        tokens = pairs * sum(job.tokens * (job.passes + job.baseline) for job in plan.jobs)
        bound = sum(hours(plan, pair, Times.of_bandwidth(pair.memory)) for pair in plan.pairs)
        counts = (pairs * cells, pairs * (len(plan.jobs) - cells), tokens)
        total = [so_far + more for so_far, more in zip(total, (*counts, bound), strict=True)]
        state = _so_far(progress.read(plan.results_dir, name))
        yield f"{_line(name, str(pairs), counts, bound)} {_measured(plan):>9}  {state}"
    yield _line("all", "", (int(total[0]), int(total[1]), int(total[2])), total[3])
    yield NOTE


def _line(name: str, pairs: str, counts: tuple[int, int, int], bound: float) -> str:
    cells, measured, tokens = counts
    return f"{name:<24} {pairs:>5} {cells:>6} {measured:>7} {tokens:>12,} {number(bound):>10}"


def _so_far(found: progress.Progress) -> str:
    """How far it is; what was never begun is not `not planned` below a plan."""
    begun = found.planned is not None or found.state != progress.MISSING
    return progress.words(found) if begun else "not begun"


def _measured(plan: Plan) -> str:
    """Hours at measured forward times; a dash where a pair has none."""
    every = [next(iter(measured_times(plan.results_dir, pair.spec)), None) for pair in plan.pairs]
    known = [hours(plan, pair, times) for pair, times in zip(plan.pairs, every, strict=True) if times is not None]
    return number(sum(known)) if len(known) == len(plan.pairs) else "–"
