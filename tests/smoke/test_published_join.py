"""Every number that the papers print has a cell of an experiment behind it, or a reason why not."""

import pandas as pd
import pytest
from composed import composed

from specdec_trees import published
from specdec_trees.plan.published import cells_of
from specdec_trees.published.join import ANY, NOBODY, covered, experiments, joins

KEYS = ["artifact", "target", "draft", "dataset", "temperature", "method", "params", "metric"]


def joined(paper: str, rows: pd.DataFrame) -> pd.Series:
    keys = zip(rows["artifact"], rows["metric"], strict=True)
    names = {name for artifact, metric in keys for name in experiments(paper, artifact, metric)}
    return joins(rows, [cell for name in sorted(names) for cell in cells_of(name)])


@pytest.mark.long
@pytest.mark.parametrize("paper", published.papers())
def test_every_published_row_has_a_cell_or_a_reason(paper):
    rows = published.load(paper)
    found, reasons = joined(paper, rows), published.unjoined()
    own = reasons[reasons["paper"] == paper].to_dict("records")
    excused = pd.DataFrame({number: covered(rows, reason) for number, reason in enumerate(own)}, index=rows.index)
    times = excused.sum(axis=1)
    assert rows.loc[~found & (times == 0), KEYS].to_dict("records") == [], (
        f"give it a cell in conf/experiment/{paper}, an arm in ARMS of specdec_trees/papers/{paper}/__init__.py (its "
        "`paper` is the method's name in the rows), or a line in unjoined.csv"
    )
    assert rows.loc[times > 1, KEYS].to_dict("records") == [], "one reason a row in unjoined.csv"
    idle = [reason for number, reason in enumerate(own) if not excused[number].any()]
    assert idle == [], "unjoined.csv speaks of no row of the paper"
    needless = [reason for number, reason in enumerate(own) if (excused[number] & found).any()]
    assert needless == [], "unjoined.csv speaks of rows that have a cell"


@pytest.mark.few(1)
@pytest.mark.parametrize("paper", published.papers())
def test_every_experiment_named_for_a_text_gives_what_it_says(paper):
    """Apart from params, in which a single number may be of another run."""
    rows = published.load(paper).assign(params="")
    texts = rows[~rows["artifact"].str.fullmatch(r"table\d+")]
    for (named, metric), artifacts in published.sources().items():
        for artifact in artifacts if named == paper else ():
            said = texts[texts["metric"] == metric]
            assert joins(said, cells_of(f"{paper}/{artifact}")).any(), f"sources.csv: {artifact} gives no {metric}"


def test_reasons_are_of_papers_that_there_are():
    assert set(published.unjoined()["paper"]) <= set(published.papers())
    assert published.unjoined()["reason"].str.endswith(".").all()


def tables_with_pairs() -> list[tuple[str, str]]:
    """The tables that are reproduced and whose rows name a target and a draft."""
    catalogue = published.artifacts()
    ours = catalogue[(catalogue["absent"] == "") & catalogue["artifact"].str.startswith("table")]
    named = [(row.paper, row.artifact) for row in ours.itertuples()]
    return [(paper, table) for paper, table in named if printed_pairs(paper, table)]


def printed_pairs(paper: str, table: str) -> set[tuple[str, str]]:
    """The models of a table's rows; a target without a draft counts where it drafts for itself."""
    rows = published.find(paper, table)
    rows = rows[((rows.draft != NOBODY) | (rows.method == "self_ssd")) & ~rows.target.isin(ANY)]
    return set(zip(rows.target, rows.draft, strict=True))


@pytest.mark.parametrize(("paper", "table"), tables_with_pairs(), ids="/".join)
def test_the_tables_name_the_pairs_of_the_paper(paper, table):
    chosen = f"experiment={paper}/{table}"
    pairs = [composed(chosen, f"pair={name}").pair.published for name in composed(chosen).get("pairs", [])]
    assert {(pair.target, pair.draft) for pair in pairs} == printed_pairs(paper, table), (
        f"`pairs` in conf/experiment/{paper}/{table}.yaml are those of its rows in {paper}.csv, which the pairs' own "
        "yamls call `published`"
    )
