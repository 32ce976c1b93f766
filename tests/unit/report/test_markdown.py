"""Whatever a name, a label, a note or an error holds: two renderers of Markdown show exactly it, in one cell."""

from html.parser import HTMLParser

import markdown
import mistune
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_trees.artifacts.markdown import escaped, row
from specdec_trees.artifacts.tables import Table, to_markdown

HOSTILE = [
    *("a|b", "|", "||", r"a\|b", "\\", "a\\", r"\\|", r"\*", "`", "`a`", "``a``b`", "a`b|c`", "a ` b"),
    *(
        "*a*",
        "**a**",
        "*",
        "* a",
        "a * b * c",
        "a*b*c",
        "2.08 *",
        "_a_",
        "__a__",
        "a_b_c",
        "_",
        "a__b__c",
        "opt_tree_n50",
    ),
    *(
        "[a](b)",
        "[a][b]",
        "[a]: b",
        "![a](b)",
        "[a]",
        "[ ] a",
        "[x] a",
        "2.36 [2.25, 2.47]",
        "[^1]",
        "[^1]: a",
        "[[a]]",
    ),
    *("<b>a</b>", "<script>alert(1)</script>", "<a@b.c>", "<https://a.b>", "a < b", "a<b", "<!-- a -->", "<", "< a >"),
    *("&lt;", "&amp;amp;", "&#42;", "a & b", "&", "AT&T;", "&#1", "&lt", "~a~", "~~a~~", "~", "~~~"),
    *("# a", "#a", "a #", "a ##", "C#", "> a", ">a", "- a", "-0.05", "--", "---", "- - -", "***", "===", "+ a", "+0.1"),
    *(
        "1. a",
        "1) a",
        "12. a",
        "1.5",
        "2024.",
        "a\nb",
        "a\r\n\r\n# b",
        "a\n|---|",
        "--|--",
        ":--|",
        "a  \nb",
        "\ta",
        "    a",
    ),
    *("{: .a}", "{a}", "!", "!a", "(a)", "a:b", "h\u00e9 \u2013 \u6f22", "a" * 300, "\u2028a", "x\u00a0y"),
]
ALPHABET = "\\`*_{}[]()#+-.!|<>&;:~= \n1ab"
MEANT = "seen"


def python_markdown(text):
    return markdown.markdown(text, extensions=["tables"])


def github_like(text):
    return mistune.html(text)


RENDERERS = pytest.mark.parametrize("rendered", [python_markdown, github_like])


class Page(HTMLParser):
    """The texts of some elements of a page, and all tags in it."""

    def __init__(self, html):
        super().__init__()
        self.texts, self.tags, self.open = {}, [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        for tag in self.open:
            self.texts[tag][-1] += data


def shown(text):
    """As a browser shows it: white space is one blank."""
    return " ".join(text.split())


def hostile_table(text):
    frame = pd.DataFrame({"setting": ["same", text], "mal": [text, "1.00"], f"of {text}": ["x", text]})
    return Table(
        "t", f"of {text}", frame, notes=(text, MEANT), legend={"mal": text}, headers={"mal": text}, warning=text
    )


def assert_shown(html, text):
    """A title, a warning, two rows of three cells, two notes, a meaning, and nothing else."""
    page, text = Page(html), shown(text)
    assert [shown(one) for one in page.texts["h3"]] == [f"of {text}".strip()]
    assert [shown(one) for one in page.texts["th"]] == ["setting", text, f"of {text}".strip()]
    assert [shown(one) for one in page.texts["td"]] == ["same", text, "x", text, "1.00", text]
    assert [shown(one) for one in page.texts["li"]] == [text, MEANT, shown(f"{text}: {text}")]
    assert shown(page.texts["p"][0]) == text
    assert {*page.tags} <= {"h3", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li"}


@RENDERERS
@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_shows_what_stands_in_it(text, rendered):
    assert_shown(rendered(to_markdown(hostile_table(text))), text)


@RENDERERS
@given(text=st.text(ALPHABET, min_size=1, max_size=12).filter(lambda text: text.strip()))
def test_so_it_does_of_any_text(text, rendered):
    assert_shown(rendered(to_markdown(hostile_table(text))), text)


@RENDERERS
@given(cells=st.lists(st.text(ALPHABET, max_size=8), min_size=2, max_size=4))
def test_a_row_has_its_cells(cells, rendered):
    page = Page(rendered("\n".join([row(["h"] * len(cells)), f"|{'---|' * len(cells)}", row(cells)])))
    assert [shown(one) for one in page.texts["td"]] == [shown(cell) for cell in cells]


@pytest.mark.parametrize("text", ["opt_tree_n50", "2.36 [2.25, 2.47]", "-0.05", "2.08 *", "a < b", "50%, n = 4 (x)"])
def test_what_is_harmless_stays_readable(text):
    assert escaped(text) == text
