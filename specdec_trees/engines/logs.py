"""Records in what engines print: logs of vLLM and llama.cpp, and what their `/metrics` say."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import ceil, floor

from specdec_trees.engines.records import NAMES, Record

_BEGAN = "Counted since the engine began, its warm-up too."
_ROUNDING = 1e-6
"""Room for the arithmetic of floats in a number of steps."""
_VLLM = re.compile(
    r"(?:Mean acceptance length: ([\d.]+), .*?)?"
    r"Accepted: (\d+) tokens, Drafted: (\d+) tokens(?:, Per-position acceptance rate: ([\d., ]*))?"
)
_REQUEST = re.compile(
    r"draft acceptance(?: rate)? = [\d.]+ \(\s*(\d+) accepted /\s*(\d+) generated\)"
    r"(?:, mean (?:len|acceptance length) =\s*([\d.]+))?(?:.*per position = \(([\d., ]*)\))?"
)
_POSITIONS = re.compile(r"acc per pos = \(([\d., ]*)\)")
_SLOT = re.compile(r"id\s+(\d+)\s*\|\s*task\s+(-?\d+)")
_STATISTICS = re.compile(
    r"statistics\s+(\S+): #calls(?:\(b,g,a\))? = *(?:\d+ +\d+ +)?(\d+), #gen drafts = *(\d+), "
    r"#acc drafts = *\d+, #gen tokens = *(\d+), #acc tokens = *(\d+)(?:.*#acc rate/pos = \(([\d., ]*)\))?"
)
_SERIES = re.compile(
    r"^((?:vllm|llamacpp):spec_decode_(num_\w+?)(?:_total)?(?:\{(.*)\})?)[ \t]+([\d.eE+]+)(?:[ \t]+-?\d+)?[ \t\r]*$",
    re.MULTILINE,
)


def scraped(text: str) -> tuple[list[Record], list[str]]:
    """What `/metrics` says; of several scrapes the last. Engines of several ranks and models are added up."""
    series: dict[str, tuple[tuple[str, int], float]] = {}
    scrapes: Counter[str] = Counter()
    for whole, name, labels, value in _SERIES.findall(text):
        place = re.search(r'position="(\d+)"', labels)
        series[whole] = (name, int(place[1]) if place else -1), float(value)
        scrapes[whole] += 1
    sums: Counter[tuple[str, int]] = Counter()
    for key, value in series.values():
        sums[key] += round(value)
    own = {quantity: names["vllm"] for quantity, names in NAMES.items() if "vllm" in names}
    if not all((own[quantity], -1) in sums for quantity in ("drafted", "accepted", "steps")):
        return [], []
    reached = tuple(count for (name, _), count in sorted(sums.items()) if name == own["reached"])
    drafted, accepted, steps = (sums[own[quantity], -1] for quantity in ("drafted", "accepted", "steps"))
    notes = [_BEGAN]
    if (times := max(scrapes.values())) > 1:
        notes.append(f"Of {times} scrapes the last is taken: it counts what the others do.")
    return [Record(drafted, accepted, steps, reached or None)], notes


def statistics(text: str) -> tuple[list[Record], list[str]]:
    """llama.cpp's statistics by type of draft: each line counts since the server began, so that the last is taken.

    Its mean length divides by the calls that accept, the last of three; older lines have none, and steps are drafts.
    """
    last = {kind: counts for kind, *counts in _STATISTICS.findall(text)}
    records = []
    for calls, drafts, *tokens, rates in last.values():
        drafted, accepted = map(int, tokens)
        steps, shares = int(calls if rates else drafts), [*map(float, _numbers(rates))]
        reached = tuple(round(share * steps) for share in shares)
        whole = abs(sum(reached) - accepted) <= len(shares) * (0.0005 * steps + 0.5)  # else it prints some positions
        records.append(Record(drafted, accepted, steps, reached if shares and whole else None))
    return records, [_BEGAN] if records else []


def lines(text: str) -> tuple[list[Record], list[str]]:
    """Lines of vLLM's log, each of the time since the line before; of a server's requests; of `llama-speculative`."""
    records = []
    for mean, accepted, drafted, rates in _VLLM.findall(text):
        records.append(estimated(int(drafted), int(accepted), mean, _numbers(rates)))
    for accepted, drafted, mean, rates in _requests(text):
        records.append(estimated(int(drafted), int(accepted), mean, _numbers(rates)))
    for drafted, accepted in re.findall(r"n_drafted\s*= (\d+).*\n.*n_accept\s*= (\d+)", text):
        records.append(Record(int(drafted), int(accepted)))
    return records, []


def _requests(text: str) -> Iterator[list[str]]:
    """Of a llama.cpp server: what each request's line has, with positions of a line of their own put to theirs."""
    requests: list[tuple[tuple[str, ...], list[str]]] = []
    for line in text.splitlines():
        slot = _SLOT.search(line)
        whose = slot.groups() if slot else ()
        if counts := _REQUEST.search(line):
            requests.append((whose, [group or "" for group in counts.groups()]))
        elif rates := _POSITIONS.search(line):
            for other, request in reversed(requests):
                if other == whose:
                    request[-1] = request[-1] or rates[1]
                    break
    for _, request in requests:
        yield request


def estimated(drafted: int, accepted: int, mean: str, rates: list[str]) -> Record:
    """Of a line without a number of steps: of its mean length and its rates by position, as they are printed.

    Steps and positions are None where they are not told, and where no number of steps gives what is printed.
    """
    if not drafted:
        return Record(0, accepted, 0)
    limits = _limits(drafted, accepted, mean, rates)
    shares = [*map(float, rates)]
    if not limits and rates:  # some positions are not printed
        limits, shares = _limits(drafted, accepted, mean, []), []
    if not limits:
        return Record(drafted, accepted)
    fewest, most = limits
    if shares:
        scale = accepted / sum(shares) if sum(shares) else 0
        guess = max(scale, drafted / len(shares))
    else:
        scale, guess = 0, accepted / (float(mean) - 1) if float(mean) > 1 else (fewest + most) / 2
    steps = min(max(round(guess), fewest), most)
    reached = tuple(min(round(share * scale), steps) for share in shares)
    return Record(drafted, accepted, steps, reached or None, None if fewest == most else limits)


def _limits(drafted: int, accepted: int, mean: str, rates: list[str]) -> tuple[int, int] | None:
    """The fewest and the most steps that give what is printed: a number stands for all that round to it.

    A step drafts one token at least, and one for each position at most, unless the last ones, where nothing was
    accepted, are not printed.
    """
    limits = [(1, drafted)]
    if mean:
        low, high = _rounded(mean)
        limits.append(_steps(accepted, max(low - 1, 0), high - 1, drafted))
    if rates:
        low, high = map(sum, zip(*map(_rounded, rates), strict=True))
        limits.append(_steps(accepted, low, high, drafted))
    fewest, most = max(limit[0] for limit in limits), min(limit[1] for limit in limits)
    full = ceil(drafted / len(rates)) if rates else 1
    fewest = max(fewest, full) if full <= most else fewest
    return (fewest, most) if (mean or rates) and fewest <= most else None


def _steps(accepted: int, low: float, high: float, drafted: int) -> tuple[int, int]:
    """The fewest and the most steps that accept so many tokens, so many each."""
    fewest = ceil(accepted / high - _ROUNDING) if high > 0 else drafted + 1
    return fewest, floor(accepted / low + _ROUNDING) if low > 0 else drafted


def _rounded(printed: str) -> tuple[float, float]:
    """What a printed number may be."""
    half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    return max(float(printed) - half, 0), float(printed) + half


def _numbers(rates: str) -> list[str]:
    return rates.replace(",", " ").split()
