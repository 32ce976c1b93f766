"""A line for every artifact: cells, other measurements, tokens, hours, and how far it is."""

from collections.abc import Iterator, Sequence

from specdec_trees.papers.registry import ARTIFACTS
from specdec_trees.plan.planning import Plan, hours, make, number, times_here
from specdec_trees.results import progress

HEADER = f"{'artifact':<24} {'pairs':>5} {'cells':>6} {'others':>7} {'tokens':>12} {'hours':>11}  results so far"
UNKNOWN = "–"
NOTE = f"""\
cells: of all pairs; those that several artifacts have in common are run once. others: measurements beside cells, such
as vectors, forward times, tables of attention, trainings. tokens: new ones of both arms and second passes, if all
answers are as long as they may be. hours: on this machine, at forward times measured here (python -m
specdec_trees.latency pair=<pair>, or runs of the pair in results); {UNKNOWN} where a pair has none. about: on a GPU,
forwards of a pair without them take as long as reading its weights, or in eager mode as launching its kernels, if that
is longer."""


def overview(arguments: Sequence[str]) -> Iterator[str]:
    """The lines as they come: some twenty seconds for all."""
    yield HEADER
    total, known = [0, 0, 0], []
    for name in ARTIFACTS:
        plan = make([f"experiment={name}", *arguments])
        jobs = [job for pair in plan.pairs for job in pair.jobs]
        tokens = sum(job.tokens * job.passes + job.baseline for job in jobs)
        counts = (plan.cells, len(jobs) - plan.cells, tokens)
        total = [so_far + more for so_far, more in zip(total, counts, strict=True)]
        known.append(_hours(plan))
        line = _line(name, str(len(plan.pairs)), counts, *known[-1])
        yield f"{line}  {_so_far(progress.read(plan.results_dir, name))}"
    every = [value for value, _ in known if value is not None]
    whole = sum(every) if len(every) == len(known) else None
    yield _line("all", "", total, whole, any(rough for _, rough in known))
    yield NOTE


def _line(name: str, pairs: str, counts: Sequence[int], value: float | None, rough: bool) -> str:
    cells, measured, tokens = counts
    words = UNKNOWN if value is None else f"{'about ' if rough else ''}{number(value)}"
    return f"{name:<24} {pairs:>5} {cells:>6} {measured:>7} {tokens:>12,} {words:>11}"


def _so_far(found: progress.Progress) -> str:
    """How far it is; what was never begun is not `not planned` below a plan."""
    begun = found.planned is not None or found.state != progress.MISSING
    return progress.words(found) if begun else "not begun"


def _hours(plan: Plan) -> tuple[float | None, bool]:
    """Of all pairs on this machine, None where they are not known of one; and whether one is an estimate."""
    every = [(pair, times_here(plan, pair)) for pair in plan.pairs]
    known = [(pair, times) for pair, times in every if times is not None]
    if len(known) < len(every):
        return None, False
    return sum(hours(plan, pair, times) for pair, times in known), any(times.estimate for _, times in known)
