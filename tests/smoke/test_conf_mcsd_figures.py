"""Improved MCSD's Figures 4, 6, 7 and 8 against what the paper, or our choice where it is silent, sweeps."""

import pytest
from composed import cells, composed, plain

from specdec_trees import published

WIDTHS = [1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 21, 24]


def configs(figure: str) -> list:
    return [composed(*cell) for cell in cells(f"improving_mcsd/{figure}")]


@pytest.mark.long
@pytest.mark.parametrize(("figure", "temperature"), [("fig4", 0.7), ("fig6", 1.0), ("fig7", 1.0), ("fig8", 1.0)])
def test_what_the_figures_have_in_common(figure: str, temperature: float) -> None:
    for config in configs(figure):
        assert config.dataset.name == "mt_bench"
        decoding = (config.decoding.temperature, config.decoding.top_p, config.decoding.max_new_tokens)
        assert decoding == (temperature, 1.0, 200)
        drafter = plain(config)["drafter"]
        assert (drafter["draws"], drafter["draft_temperature"]) == ("without_replacement", temperature)
        assert config.runtime.baseline, "speeds are set against autoregressive decoding"


def test_figure_4_has_all_trees_of_a_and_b_up_to_5() -> None:
    found = configs("fig4")
    assert [plain(config)["drafter"]["widths"] for config in found] == [
        [2, a, b, 1, 1] for a in range(1, 6) for b in range(1, 6)
    ]
    assert {config.verifier.name for config in found} == {"independent_longest"}


def test_figure_6_sweeps_widths_that_the_paper_speaks_of() -> None:
    found = configs("fig6")
    assert [config.drafter.width for config in found] == WIDTHS
    facts = published.find("improving_mcsd", "fig_text", params="figure=6;depth=5")
    assert set(facts["value"]) <= set(WIDTHS)
    assert {(config.drafter.depth, config.drafter.init, config.drafter.decision) for config in found} == {
        (5, "target", None)
    }
    rules = [config.verifier.name for config in found]
    assert rules == ["longest_subtree"] + ["independent_longest"] * (len(WIDTHS) - 1)
    assert [config.verifier.allow_lossy for config in found] == [False] + [True] * (len(WIDTHS) - 1)


def test_figure_7_trains_on_other_conversations_than_figure_8_decodes() -> None:
    """Of another dataset, so that all of MT-Bench's are decoded."""
    (trained,) = configs("fig7")
    assert (trained.measure, trained.calibration.decision.dataset.name) == ("decision", "alpaca")
    decoded = configs("fig8")
    assert {config.calibration.decision.dataset.name for config in decoded} == {"alpaca"}
    assert {(config.dataset.name, config.dataset.part, config.dataset.limit) for config in decoded} == {
        ("mt_bench", "all", 80)
    }


def test_figure_8_has_every_width_with_and_without_each_decision_model() -> None:
    found = [(config.drafter.width, config.drafter.decision) for config in configs("fig8")]
    assert sorted(found, key=str) == sorted(
        ((width, kind) for width in WIDTHS for kind in (None, "hidden", "topk")), key=str
    )
    assert {(config.drafter.depth, config.drafter.beta) for config in configs("fig8")} == {(5, 0.4)}


def test_the_pairs_are_those_of_the_figures() -> None:
    pairs = {figure: list(composed(f"experiment=improving_mcsd/{figure}").pairs) for figure in ("fig4", "fig6", "fig8")}
    assert pairs == {
        "fig4": ["llama2_7b_chat_jf68m"],
        "fig6": ["llama2_7b_chat_jf68m", "vicuna_7b_jf68m", "llama2_7b_chat_tinyllama", "vicuna_7b_tinyllama"],
        "fig8": ["llama2_7b_chat_jf68m", "llama2_7b_chat_tinyllama"],
    }
