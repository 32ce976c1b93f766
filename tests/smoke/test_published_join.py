"""Every number that the papers print has a cell of an experiment behind it, or a reason why not."""

import pandas as pd
import pytest
from published_cells import cells_of

from bench import published
from bench.published.join import covered, experiments, joins

KEYS = ["artifact", "target", "draft", "dataset", "temperature", "method", "params", "metric"]


def joined(paper: str, rows: pd.DataFrame) -> pd.Series:
    keys = zip(rows["artifact"], rows["metric"], strict=True)
    names = {name for artifact, metric in keys for name in experiments(paper, artifact, metric)}
    return joins(rows, [cell for name in sorted(names) for cell in cells_of(name)])


@pytest.mark.parametrize("paper", published.papers())
def test_every_published_row_has_a_cell_or_a_reason(paper):
    rows = published.load(paper)
    found, reasons = joined(paper, rows), published.unjoined()
    own = reasons[reasons["paper"] == paper].to_dict("records")
    excused = pd.DataFrame({number: covered(rows, reason) for number, reason in enumerate(own)}, index=rows.index)
    times = excused.sum(axis=1)
    assert rows.loc[~found & (times == 0), KEYS].to_dict("records") == []
    assert rows.loc[times > 1, KEYS].to_dict("records") == []
    assert [reason for number, reason in enumerate(own) if not excused[number].any()] == []
    assert [reason for number, reason in enumerate(own) if (excused[number] & found).any()] == []


@pytest.mark.parametrize("paper", published.papers())
def test_every_experiment_named_for_a_text_gives_what_it_says(paper):
    """Apart from params, in which a single number may be of another run."""
    rows = published.load(paper).assign(params="")
    texts = rows[~rows["artifact"].str.fullmatch(r"table\d+")]
    for (named, metric), artifacts in published.sources().items():
        for artifact in artifacts if named == paper else ():
            said = texts[texts["metric"] == metric]
            assert joins(said, cells_of(f"{paper}/{artifact}")).any(), (metric, artifact)


def test_reasons_are_of_papers_that_there_are():
    assert set(published.unjoined()["paper"]) <= set(published.papers())
    assert published.unjoined()["reason"].str.endswith(".").all()
