"""What READMEs say of results stands between marks that a command draws; nothing measured stands outside of them."""

import re
from pathlib import Path

import pytest

from specdec_trees.report import prose

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "results" / "reference"
DOCS = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").glob("*.md"))]
INTERVAL = r"\[-?\d+\.\d+, -?\d+\.\d+\]"
MEASURED = re.compile(
    rf"{INTERVAL}|\d+\.\d|\d ?%|\d ?(x|us|ms|s|seconds|minutes|hours|nats)\b|\d times\b"
    r"|\b(ahead of|behind in|lead|leads|highest|lowest|tied|resolved|faster than|slower than|loses|wins|best is)\b",
    re.IGNORECASE,
)
"""Numbers with a fraction or a unit, and words of an order."""


def plain(text: str) -> str:
    """A text without what is drawn, code, titles of figures and where links lead: settings stand in code font."""
    for pattern in (prose.MARKED, re.compile(r"```.*?```", re.DOTALL), re.compile(r"`[^`]*`")):
        text = pattern.sub("", text)
    return re.sub(r"\]\([^)]*\)|<https?:[^>]*>", "]", text)


@pytest.mark.parametrize("name", prose.TEXTS)
def test_the_readmes_state_no_result_outside_of_marks(name: str) -> None:
    lines = plain((ROOT / name).read_text(encoding="utf-8")).splitlines()
    assert [line for line in lines if MEASURED.search(line)] == []


@pytest.mark.parametrize("name", DOCS)
def test_docs_have_no_measured_interval_nor_time_of_ours(name: str) -> None:
    text = plain((ROOT / name).read_text(encoding="utf-8"))
    assert re.findall(rf"{INTERVAL}|\d ?(?:us|ms)\b|\d times as", text) == []


@pytest.mark.long
@pytest.mark.parametrize("name", prose.TEXTS)
def test_what_is_marked_is_what_the_command_draws(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert prose.MARKED.search(text)
    assert text == prose.rewritten(text, REFERENCE), "python -m specdec_trees.report.prose draws it anew"


@pytest.mark.parametrize(
    "sentence",
    [
        "EAGLE-2 leads here.",
        "It is behind in three, tied in two.",
        "The lead is resolved at 8 and 96.",
        "A tree of 3 nodes is at 1.08 times this.",
        "It drafts 86% of the nodes.",
        "It was there in less than 3 minutes.",
        "MAL is 2.38 [2.27, 2.51].",
        "Drafting costs 36 us a node.",
    ],
)
def test_sentences_with_a_number_or_an_order_are_seen(sentence: str) -> None:
    assert MEASURED.search(plain(sentence))
    assert not MEASURED.search(plain(f"<!-- rows: trees -->\n{sentence}\n<!-- / -->"))


def test_the_command_rewrites_marked_places_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- rows: trees -->\nold 1.0\n<!-- / -->\nafter, delta `0.2`\n", encoding="utf-8")
    assert prose.main(["--results", str(REFERENCE), str(page)]) == 0
    drawn = page.read_text(encoding="utf-8")
    assert drawn.startswith("before\n<!-- rows: trees -->\n| tree")
    assert drawn.endswith("<!-- / -->\nafter, delta `0.2`\n")
    assert "old" not in drawn
    with pytest.raises(KeyError):
        prose.rewritten("<!-- rows: nothing -->\n<!-- / -->", REFERENCE)
