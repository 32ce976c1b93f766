"""`python -m specdec_trees.report.prose`: write what the READMEs say of results, from the committed rows.

What was measured stands between `<!-- rows: name -->` and `<!-- / -->`, and nowhere else in these texts.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from specdec_trees.artifacts.markdown import row
from specdec_trees.artifacts.tables import ABSENT, Table, wrapped
from specdec_trees.artifacts.verdict import NOT_RESOLVED, ORDER_HOLDS, word
from specdec_trees.papers.beyond import claims
from specdec_trees.papers.beyond.answers import NO_LEAD, REVERSED, TIE_HOLDS
from specdec_trees.papers.beyond.drafts import BEST_FIRST, WHOLE
from specdec_trees.papers.registry import build
from specdec_trees.results.rows import AUTOREGRESSIVE
from specdec_trees.results.store import OK, Store, experiments
from specdec_trees.statistics import samples
from specdec_trees.statistics.intervals import Interval

TEXTS = ("README.md", "results/reference/README.md")
MARKED = re.compile(r"<!-- rows: (\w+) -->\n(.*?)<!-- / -->", re.DOTALL)
_REAL, CHAIN = "smollm2_135m_", "chain"
_DRAFTS = {f"{_REAL}draft": "small draft", f"{_REAL}eagle": "EAGLE head"}
_NODES = 32
"""Of the trees that the drafts are compared by."""
_MEASURES = {"mal": "MAL", "speedup": "speed"}


def trees(results: Path) -> str:
    """MAL and speed of the real model in OPT-Tree's Table 1, columns for each draft."""
    table = _table("opt_tree/table1", results)
    frame = table.frame
    frame = frame[frame["target_words"].str.startswith(_REAL) & (frame["size_words"] != "0")]
    frame = frame.assign(
        tree=frame["label"] + ", " + frame["size_words"].str.partition(" ")[0],
        draft=frame["target_words"].str.partition(" ")[0].map(_DRAFTS),
    )
    for name in ("mal", "speedup"):
        frame[name] = frame[name].str.replace(r" [*=]$", "", regex=True)
    shown = frame.pivot(index="tree", columns="draft", values=["mal", "speedup"]).fillna(ABSENT)
    columns = [(name, draft) for draft in _DRAFTS.values() for name in ("mal", "speedup")]
    headers = [f"{_MEASURES[name]}, {draft}" for name, draft in columns]
    rows = [[str(tree), *shown.loc[tree, columns]] for tree in dict.fromkeys(frame["tree"])]
    below = " ".join((_settings(frame, results), *_noise(table)))
    return f"{_grid(['tree, drafted nodes', *headers], rows)}\n\n{wrapped(below)}"


def _settings(frame: pd.DataFrame, results: Path) -> str:
    """What the table of trees rests on: OPT-Tree's delta by draft, conversations, and the length of answers."""
    grown = frame[frame["delta"] != ABSENT].drop_duplicates("draft")
    deltas = ", ".join(f"{one.delta} ({one.draft})" for one in grown.itertuples())
    runs = Store(results, "opt_tree/table1").read("runs")
    runs = runs[runs["pair"].isin(_DRAFTS) & (runs["status"] == OK)]
    counts = [rows["num_conversations"].max() for rows in (runs, runs[runs["recording"].isna()])]
    sizes = f"{counts[0]} conversations, speed of {counts[1]}, {runs['max_new_tokens'].max()} tokens a turn"
    return f"OPT-Tree's delta: {deltas}. MAL is of {sizes}."


def _noise(table: Table) -> Iterator[str]:
    """That a draft's speeds are too noisy to rank, by the baselines of its rows."""
    assert table.long is not None
    long = table.long[table.long["method"] != AUTOREGRESSIVE]
    for pair, draft in _DRAFTS.items():
        speeds = long.loc[(long["pair"] == pair) & long["metric"].map(lambda one: one.key == "speedup"), "sample"]
        if samples.too_busy(list(speeds.dropna())):
            yield f"The trees' speeds with the {draft} are too noisy to rank among themselves."


def rules(results: Path) -> str:
    """Which rule to sample by, what is owed to how children are drawn, and what to merged sequences."""
    long = _table("bench/rules", results).long
    assert long is not None
    key = long["metric"].map(lambda metric: metric.key)
    rows = long[(key == "by_rule") & long["verifier"].str.startswith("traversal")].dropna(subset="value")
    drawn = long[(key == "by_draws") & ~long["later"] & (long["method"] != CHAIN)].dropna(subset="value")
    pairs, datasets = (_listed([*rows[name].unique()]) for name in ("pair", "dataset"))
    by_draws = (
        "To sample, do not draft the best tokens alone: they yield "
        f"{_spans(drawn[drawn['draws'] == 'topk'])} times what independent draws do. Which draws are best is open."
    )
    by_rule = (
        f"Judge draws by Traversal: on the same trees it yields {_spans(rows)} times what judging child by child does "
        f"({pairs}, {datasets}). `drafter=sequoia verifier=traversal` does so; other trees of fixed shape want "
        "`drafter.draws=without_replacement` too."
    )
    return wrapped(f"{by_draws} {by_rule} {_left_of_sequoia(results)}")


def drafts(results: Path) -> str:
    """What the drafts of the real model reach with trees of one size, and what one that is the target does."""
    long = _table("bench/drafts", results).long
    assert long is not None
    rows = long[long["metric"].map(lambda metric: metric.key == f"mal_{_NODES}")].dropna(subset="value")
    rows = rows.assign(drafted_by=rows["drafted_by"].str.partition(" of ")[0])
    alike = rows[rows["method"] == BEST_FIRST].set_index("drafted_by")["sample"].to_dict()
    rows = rows[rows["drafted_by"] != WHOLE].sort_values("value", ascending=False, kind="stable")
    best = rows.drop_duplicates("drafted_by").set_index("drafted_by")
    usual = best["label"].mode().iloc[0]
    reached = [
        f"{_interval(one.interval)} ({name}{f': {one.label}' * (one.label != usual)})" for name, one in best.iterrows()
    ]
    where = f"{best['num_conversations'].max():g} conversations of {_listed(rows['dataset'].unique())}"
    heads = [next(str(name) for name in alike if str(name).startswith(head)) for head in ("EAGLE-3", "DFlash")]
    ratio = samples.paired_ratio(*(alike[name] for name in heads))
    steps = rows[rows["method"] == BEST_FIRST].set_index("drafted_by")["by_size"]
    forwards = [float(steps[name][_NODES]["draft_forwards"].mean()) for name in heads]
    ahead = samples.paired_ratio(alike[WHOLE], alike[next(name for name in best.index if name in alike)])
    sentences = (
        f"With {_NODES} nodes this model's drafts reach MAL {', '.join(reached)}.",
        f"These are of {usual}s, {where}, {rows['max_new_tokens'].max()} tokens a turn, greedy (`bench/drafts`).",
        "Best-first is OPT-Tree with delta 0, for MAL and not for speed. That ranks checkpoints, not methods: the "
        "EAGLE-1 head had twice the text and more than twice the training time.",
        f"{heads[0]} yields {_interval(ratio)} times {heads[1]}, by {forwards[0]:.1f} draft forwards a step in place "
        f"of {forwards[1]:.1f}.",
        f"The target as its own draft yields {_interval(ahead)} times the best, which is no bound.",
    )
    return wrapped(" ".join(sentences))


def _left_of_sequoia(results: Path) -> str:
    """Its lead over SpecInfer at 64 nodes where the baseline's sequences stand apart, and where they are merged."""
    long = _table("dyspec/table1", results).long
    assert long is not None
    lengths = long[(long["metric"].map(lambda metric: metric.key) == "mal") & (long["temperature"] > 0)]
    leads: dict[str, list[str]] = {"spec_infer": [], "spec_infer_merged": []}
    for (_, dataset), rows in lengths.groupby(["block", "dataset"]):
        lengths_of = rows.set_index("method")["sample"]
        if {"sequoia", *leads} <= {*lengths_of.index}:
            for baseline, words in leads.items():
                ratio = samples.paired_ratio(lengths_of["sequoia"], lengths_of[baseline])
                words.append(f"{_interval(ratio)} ({dataset})")
    apart, merged = map(_listed, leads.values())
    return (
        f"At temperature 0.6 Sequoia's 64 nodes yield {apart} times what SpecInfer's do (`dyspec/table1`). "
        f"Where sequences that begin alike are merged it is {merged} times."
    )


def _interval(ratio: Interval) -> str:
    """As tables have it."""
    return f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _spans(rows: pd.DataFrame) -> str:
    """From the least to the most, at each temperature."""
    spans = rows.groupby("temperature")["value"].agg(["min", "max"])
    return _listed([f"{low:.2f} to {high:.2f} (temperature {one:g})" for one, low, high in spans.itertuples()])


def _listed(words: Iterable[str]) -> str:
    """In one phrase."""
    return " and ".join(words)


def answers(results: Path) -> str:
    """How the page of claims answers each paper's on the real model."""
    frame = _real(results)
    lines = []
    for paper, group in frame.groupby(frame["table"].str.partition("/")[0], sort=False):
        sure = group[group["after_correction"].str.startswith("yes")]
        counts = [Counter(map(_kind, some["pooled"])) for some in (group, sure)]
        lines.append([str(paper), *(_of(*(count[word] for count in counts)) for word in _KINDS)])
    return _grid(["paper", *_KINDS], lines)


def surviving(results: Path) -> str:
    """The answers on the real model that hold after the correction for the number of all answers."""
    real = _real(results)
    kept = real[real["after_correction"].str.startswith("yes")]
    faster = kept["measure"].str.startswith("speedup") & (kept["pooled"] == ORDER_HOLDS)
    unresolved = real["pooled"].str.startswith(NOT_RESOLVED).sum()
    counts = (
        f"Of {len(real)} answers on the real model {len(kept)} survive the correction, "
        f"{len(real) - len(kept) - unresolved} hold at 95% alone, and {unresolved} are not resolved. "
        f"{faster.sum() or 'None'} of those that survive shows a speedup above plain decoding.\n\n"
    )
    names = ["claim", "measure", "pair", "temperature", "published", "ours", "pooled"]
    pairs = kept["pair"].str.partition(" ")[0]
    headers = [claims.HEADERS[name] for name in names]
    return counts + _grid(headers, kept.assign(pair=pairs)[names].to_numpy().tolist())


def measured(results: Path) -> str:
    """Where and when each pair's rows were measured, and at which revision."""
    rows = pd.concat([store.read("runs") for store in experiments(results, "runs")])
    rows = rows.assign(revision=rows["git_revision"].str[:7], day=rows["created_utc"].str[:10])
    keys = ["pair", "device_name", "num_threads", "max_new_tokens", "revision"]
    lines = []
    for key, group in rows.groupby(keys, dropna=False):
        counts = group["num_conversations"]
        conversations = " to ".join(dict.fromkeys((f"{counts.min():g}", f"{counts.max():g}")))
        names = ", ".join(group["experiment"].drop_duplicates())
        lines.append([*map(str, key), conversations, group["day"].min(), names])
    return _grid(["pair", "machine", "threads", "new tokens", "revision", "conversations", "day", "rows"], lines)


FACTS: Mapping[str, Callable[[Path], str]] = {
    "trees": trees,
    "drafts": drafts,
    "rules": rules,
    "answers": answers,
    "surviving": surviving,
    "measured": measured,
}
"""What a mark may name."""
_KINDS = (ORDER_HOLDS, f"{ORDER_HOLDS}, plain decoding not beaten", TIE_HOLDS, NO_LEAD, REVERSED, NOT_RESOLVED)


def rewritten(text: str, results: Path) -> str:
    """A text with what is marked drawn anew; raises KeyError of a mark that names nothing."""
    return MARKED.sub(lambda mark: f"<!-- rows: {mark[1]} -->\n{FACTS[mark[1]](results)}\n<!-- / -->", text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the texts and name those that changed; 0."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.report.prose", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/reference"), help="default: %(default)s")
    parser.add_argument("texts", nargs="*", type=Path, default=[Path(text) for text in TEXTS], help="default: both")
    options = parser.parse_args(arguments)
    for path in options.texts:
        before = path.read_text(encoding="utf-8")
        after = rewritten(before, options.results)
        path.write_text(after, encoding="utf-8")
        print(f"{path}: {'as it was' if after == before else 'drawn anew'}")
    return 0


@cache
def _table(artifact: str, results: Path) -> Table:
    return next(output for output in build(artifact, results) if isinstance(output, Table))


def _real(results: Path) -> pd.DataFrame:
    """The rows of the page of claims on the real model that have an answer."""
    frame = _table("claims", results).frame
    return frame[frame["pair"].str.startswith(_REAL) & ~frame["pooled"].str.startswith("not comparable")]


def _kind(words: str) -> str:
    """Which column of `answers` counts an answer."""
    return _KINDS[1] if words.startswith(f"{_KINDS[0]}, ") else word(words).partition(",")[0]


def _of(every: int, sure: int) -> str:
    """`3 (2)`: so many, and in brackets how many hold after the correction."""
    return f"{every} ({sure})" if every else ABSENT


def _grid(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = f"|{' --- |' * len(headers)}"
    return "\n".join([row(headers), rule, *map(row, rows)])


if __name__ == "__main__":
    sys.exit(main())
