"""Prompts are known by the token ids that were decoded, and no template reads the clock."""

from pathlib import Path

import pytest
import transformers.utils.chat_template_utils as chat
from cells import execute
from resumed import Counted, Killed
from transformers import AutoTokenizer

from specdec_trees.compare.changes import Couple
from specdec_trees.compare.sides import find
from specdec_trees.measure import provenance
from specdec_trees.prompts import templates
from specdec_trees.prompts.embedded import TINY
from specdec_trees.prompts.templates import DATE, prompt_ids, template_date
from specdec_trees.results.store import Store, load

USER = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
LLAMA = (
    "{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}\n"
    '        {%- set date_string = strftime_now("%d %b %Y") %}\n    {%- else %}\n'
    '        {%- set date_string = "26 Jul 2024" %}\n    {%- endif %}\n{%- endif %}\n'
    "Today Date: {{ date_string }}\n" + USER
)
"""The form: what it writes, and how."""
DATED = {
    "strftime_now": ('Current date: {{ strftime_now("%Y-%m-%d") }}\n' + USER, "Current date: 2024-07-26\n"),
    "date_string": (LLAMA, "Today Date: 26 Jul 2024\n"),
    "both words": ("{{- strftime_now('%B %d, %Y') }}.{{ date_string }}" + USER, "July 26, 2024.26 Jul 2024"),
    "in a macro": (
        "{%- macro today() %}{{ strftime_now('%A %-d.%-m.%y, 100%%Y') }}{% endmacro %}{{ today() }}" + USER,
        "Friday 26.7.24, 100%Y",
    ),
    "at its first line": ("\n  {% if true %}x{% endif %}{{ strftime_now('%j') }}" + USER, "\nx208"),
    "as a number": ("{% if strftime_now('%Y') | int == 2024 %}then{% else %}now{% endif %}" + USER, "then"),
}


def rendered(form: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str | None]:
    """What a tokenizer with this template is given, whatever the clock says, and the date that is said of it."""

    class Later(DATE.__class__):  # type: ignore[misc]
        """A clock of another day."""

        @classmethod
        def now(cls, tz=None):
            return cls(2031, 12, 5)

    monkeypatch.setattr(chat, "datetime", Later)
    own = AutoTokenizer.from_pretrained(TINY / "target")
    own.chat_template = form
    texts = []
    monkeypatch.setattr(templates, "_encode", lambda tokenizer, text, **options: texts.append(text) or [1])
    prompt_ids(own, "tokenizer", ["Hi"])
    return texts[0], template_date(own, "tokenizer")


@pytest.mark.parametrize("name", DATED)
def test_a_templates_date_is_fixed_and_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, words = DATED[name]
    assert rendered(form, monkeypatch) == (f"{words}<user>Hi", "2024-07-26")


def test_a_template_without_a_date_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rendered("\n  {% if true %}x{% endif %}" + USER, monkeypatch) == ("\nx<user>Hi", None)


def test_only_a_tokenizers_own_chat_template_has_a_date() -> None:
    own = AutoTokenizer.from_pretrained(TINY / "target")
    assert template_date(own, "tokenizer") is None
    own.chat_template = LLAMA
    found = [template_date(own, *how) for how in (("tokenizer",), ("tokenizer", "raw"), ("plain",))]
    assert found == ["2024-07-26", None, None]


CELL = ("pair=tiny", "dataset=mini", "runtime.warmup_conversations=0", "limit=2", "decoding.max_new_tokens=6")


@pytest.fixture
def longer(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A checkout without changes; tokens that are put before every prompt, as another day's date would be."""
    monkeypatch.setattr(provenance, "own_git_state", lambda: ("a1b2", False))
    added: list[int] = []
    encode = templates._encode
    monkeypatch.setattr(templates, "_encode", lambda *given, **options: [*added, *encode(*given, **options)])
    return added


def test_rows_say_which_tokens_were_decoded(tmp_path: Path, longer: list[int]) -> None:
    for drafter in ("chain4", "chain8"):
        assert execute(tmp_path, *CELL, f"drafter={drafter}") == "ok"
    longer[:] = [5]
    assert execute(tmp_path, *CELL, "drafter=opt_tree") == "ok"
    found = load(tmp_path, "default")
    runs = found.runs.set_index("drafter")["prompt_ids_sha256"]
    assert runs["chain4"] == runs["chain8"] != runs["opt_tree"]
    first = found.prompts[found.prompts["turn"] == 0]
    assert first.groupby("prompt_id")["prompt_ids_sha256"].nunique().tolist() == [2, 2]
    assert first.groupby(["run_id", "prompt_id"])["prompt_ids_sha256"].nunique().eq(1).all(), "in both arms the same"


def test_a_baseline_of_other_tokens_is_not_lent(tmp_path: Path, longer: list[int]) -> None:
    own = (*CELL, "runtime.baseline=shared")
    for drafter, before in (("chain4", []), ("chain8", []), ("opt_tree", [5])):
        longer[:] = before
        assert execute(tmp_path, *own, f"drafter={drafter}") == "ok"
    runs = load(tmp_path, "default").runs.set_index("drafter")
    assert runs["baseline_of"].isna().to_dict() == {"chain4": True, "chain8": False, "opt_tree": True}


def test_a_cell_begun_with_other_tokens_begins_anew_and_says_so(
    tmp_path: Path, longer: list[int], caplog, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    counted.left = 5
    with pytest.raises(Killed):
        execute(tmp_path, *CELL, "drafter=chain4")
    counted.left = None
    longer[:] = [5]
    assert execute(tmp_path, *CELL, "drafter=chain4") == "ok"
    assert "prompt_ids_sha256" in caplog.text
    prompts = Store(tmp_path, "default").read("prompts")
    assert set(prompts["start"]) == {1}


def test_compared_runs_pair_conversations_of_the_same_tokens(tmp_path: Path, longer: list[int]) -> None:
    for root, before in ((tmp_path / "a", [5]), (tmp_path / "b", [6]), (tmp_path / "c", [5])):
        longer[:] = before
        assert execute(root, *CELL, "drafter=chain4") == "ok"
    a, b, c = (find(str(tmp_path / name), tmp_path).runs[0] for name in "abc")
    assert a.prompts["num_prompt_tokens"].tolist() == b.prompts["num_prompt_tokens"].tolist()
    assert Couple(a, b).other_prompts == set(a.prompts["prompt_id"])
    assert not Couple(a, b).measured
    assert Couple(a, c).same_prompts
    assert Couple(a, c).num_conversations == 2
