"""Whether GSD drafts fewer nodes than TSD at the same acceptance rate, in a sentence with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.artifacts import tables
from bench.artifacts.runs import per_row
from bench.artifacts.tables import signed
from bench.papers.gsd.decodings import Method
from bench.papers.gsd.methods import GSD, TSD, TSD_SIB
from bench.statistics import graph_metrics, intervals, samples
from bench.statistics.intervals import Interval


def sentences(who: Mapping[str, str], methods: Sequence[Method]) -> Iterator[str]:
    """One for each of the trees that was run beside GSD, paired over the samples that both decoded."""
    found = {one.arm.header: one for one in methods}
    graph = found.get(GSD.header)
    for tree in (found.get(arm.header) for arm in (TSD, TSD_SIB)):
        if graph and tree and (text := _compared(graph, tree)):
            yield f"{who['Dataset']}, {who['Target']}: {text}"


def _compared(graph: Method, tree: Method) -> str | None:
    if graph.counts.samples.empty or tree.counts.samples.empty:
        return None
    both = graph.counts.samples.merge(tree.counts.samples, on=graph_metrics.SAMPLE, suffixes=("", "_tree"))
    if both.empty:
        return None
    both["gain"] = both["acceptance_rate"] - both["acceptance_rate_tree"]
    gain = intervals.ratio_of_sums(both.dropna(subset=["gain"]), "gain")
    drafted, created, verified = (
        samples.paired_ratio(*(per_row(one.counts.samples, name) for one in (graph, tree)))
        for name in ("drafted", "created", "verified")
    )
    return (
        f"GSD drafts {tables.ratio(drafted)} times the nodes (ii) of {tree.arm.header}, at an acceptance rate of "
        f"{signed(gain)}: {_conclusion(drafted, gain)}.{_paper(graph, tree)} With what is pruned beside a sibling (i) "
        f"it is {tables.ratio(created)}; the target reads {tables.ratio(verified)} times the nodes."
    )


def _conclusion(drafted: Interval, gain: Interval) -> str:
    if not drafted.low <= drafted.high:
        return "one conversation has no interval to judge by"
    nodes = "fewer" if drafted.high < 1 else "more" if drafted.low > 1 else "neither fewer nor more"
    rate = "higher" if gain.low > 0 else "lower" if gain.high < 0 else "not measurably different"
    return f"{nodes} nodes, the rate {rate}"


def _paper(graph: Method, tree: Method) -> str:
    ours, theirs = graph.published, tree.published
    if not {"drafted_tokens", "acceptance_rate"} <= ours.keys() & theirs.keys():
        return ""
    ratio = ours["drafted_tokens"] / theirs["drafted_tokens"]
    gain = ours["acceptance_rate"] - theirs["acceptance_rate"]
    return f" The paper: {ratio:.2f}x at {gain:+.3f}."
