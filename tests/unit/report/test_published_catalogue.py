"""What is known of the papers beside their numbers: tables and figures, definitions, hardware."""

import re

import pytest

from specdec_trees import published
from specdec_trees.papers.registry import ARTIFACTS, TITLES

COUNTS = {"dyspec": (5, 9), "gsd": (10, 8), "improving_mcsd": (4, 8), "opt_tree": (3, 11), "sequoia": (7, 6)}
COUNTS |= {"traversal": (7, 4)}
"""Numbered tables and figures, counted in the papers; of others there is no gap."""
BESIDE = {"traversal": {"spechub"}}
"""Artifacts of another paper's numbers, which have none of their own."""
NUMBERED = re.compile(r"(table|fig)(\d+)[a-d]?")
PLACE = re.compile(r"Section \d+(\.\d+)*|Appendix [A-Z](\.\d+)*")
NO_HARDWARE = {
    "gsd": "table1 table2 table3 table4 table5 table6 table7 table8 table9 table10 abstract section1 fig3 section5_1 "
    "section6_1 section6_2 fig5 fig6 fig7 fig8 appendix_a",
    "traversal": "abstract spechub",
    "opt_tree": "abstract section1 fig4 appendix_b section3 section4_1 section4_2 section4_3 section6",
}
"""Where the papers state none; GSD's does nowhere, and SpecHub's logs do not."""


def test_every_artifact_of_the_registry_is_in_the_catalogue_and_every_other_says_why_not() -> None:
    catalogue = published.artifacts()
    built = {name for name in ARTIFACTS if name.partition("/")[0] in published.papers()}
    names = catalogue["paper"] + "/" + catalogue["artifact"]
    assert not names.duplicated().any()
    assert set(names[catalogue["absent"] == ""]) == built, (
        "artifacts.csv gives a reason in `absent` for what ARTIFACTS of specdec_trees/papers/<paper> has not; "
        "specdec_trees/papers/registry.py lists the papers"
    )
    assert all(reason.endswith(".") and len(reason) > 20 for reason in catalogue["absent"] if reason)


@pytest.mark.parametrize("paper", published.papers())
def test_no_number_of_a_table_or_figure_is_left_out(paper: str) -> None:
    rows = published.artifacts().query("paper == @paper")
    own = rows[~rows["artifact"].isin(BESIDE.get(paper, ()))]
    found = [NUMBERED.fullmatch(name) for name in own["artifact"]]
    assert all(found), f"an artifact is named table1, fig2 or fig3a: {list(rows['artifact'])}"
    numbers = {kind: {int(one[2]) for one in found if one[1] == kind} for kind in ("table", "fig")}
    counts = COUNTS.get(paper) or tuple(max(of_kind, default=0) for of_kind in numbers.values())
    assert [*numbers.values()] == [set(range(1, count + 1)) for count in counts]


def test_places_are_sections_and_titles_are_short() -> None:
    catalogue = published.artifacts()
    odd = catalogue[~catalogue["place"].str.fullmatch(PLACE)]
    assert odd.empty, f"a place is Section 4, Section 4.1, Appendix A or Appendix A.1, not {list(odd['place'])}"
    assert catalogue["title"].str.len().between(10, 90).all()
    assert not catalogue[["paper", "title"]].duplicated().any()


def test_numbered_artifacts_of_the_numbers_are_in_the_catalogue() -> None:
    catalogue = published.artifacts()
    for paper in published.papers():
        known = set(catalogue.loc[catalogue["paper"] == paper, "artifact"])
        named = {name for name in published.load(paper)["artifact"] if re.fullmatch(r"(table|fig)\d+", name)}
        assert {name for name in named if not {name, f"{name}a"} & known} == set()


def test_papers_have_full_names() -> None:
    assert list(TITLES) == published.papers(), "a paper has its folder, its line in the registry and its CSV"
    assert all(len(title) > 30 for title in TITLES.values())


def test_every_number_has_one_definition_and_no_definition_is_unused() -> None:
    known = published.definitions()
    assert not known.duplicated(["paper", "artifact", "metric"]).any()
    used = set()
    for paper in published.papers():
        rows = published.load(paper)
        undefined = rows[rows["definition"] == ""]
        assert undefined.empty, undefined[["artifact", "metric"]].drop_duplicates().to_string()
        used |= {(paper, text) for text in rows["definition"]}
    texts = set(zip(known["paper"], known["definition"], strict=True))
    assert texts - used == set()
    assert known["definition"].str.endswith(".").all()


def test_no_definition_stands_behind_another() -> None:
    """One for the whole paper is used by an artifact that has none of its own."""
    known = published.definitions()
    own = set(zip(known["paper"], known["artifact"], known["metric"], strict=True))
    for row in known[known["artifact"] == published.WHOLE_PAPER].itertuples():
        rows = published.load(row.paper)
        artifacts = set(rows.loc[rows["metric"] == row.metric, "artifact"])
        assert any((row.paper, artifact, row.metric) not in own for artifact in artifacts), row
    for paper, artifact, metric in own:
        if artifact != published.WHOLE_PAPER:
            assert len(published.find(paper, artifact, metric=metric)), (paper, artifact, metric)


def test_a_definition_of_an_artifact_goes_before_that_of_the_paper() -> None:
    known = published.definitions().set_index(["paper", "artifact", "metric"])["definition"]
    for artifact, key in (("table1", "table1"), ("table8", published.WHOLE_PAPER)):
        (found,) = published.find("gsd", artifact, metric="speedup")["definition"].unique()
        assert found == known["gsd", key, "speedup"]
    assert "mean of greedy and of top-p" in known["gsd", "table1", "speedup"]


def test_where_the_papers_state_no_hardware() -> None:
    found = {}
    for paper in published.papers():
        rows = published.load(paper)
        found[paper] = set(rows.loc[rows["hardware"] == "", "artifact"])
    assert {paper: names for paper, names in found.items() if names} == {
        paper: set(names.split()) for paper, names in NO_HARDWARE.items()
    }, "fill the column `hardware`; what the paper itself leaves open belongs into NO_HARDWARE"


def test_what_is_returned_is_a_copy() -> None:
    for load in (published.artifacts, published.definitions, published.unjoined):
        first = load()
        first["paper"] = ""
        assert (load()["paper"] != "").all()
