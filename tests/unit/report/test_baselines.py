"""The papers' baselines beside the time of reading the weights, computed once more by hand."""

import pytest
import torch

from specdec_core.models.memory import outline
from specdec_trees import published
from specdec_trees.measure import hub_configs
from specdec_trees.papers.beyond.baselines import AT, baselines
from specdec_trees.published import Card, card, parameters


@pytest.fixture(scope="module")
def rows():
    table, figure = baselines("baselines", None)
    assert len(figure.canvas.axes[0].lines[0].get_xdata()) == len(table.frame)
    return table.frame.set_index(["paper", "table", "target", "dataset", "temperature"]).sort_index()


def test_sizes_are_those_of_the_published_configs():
    models = published._table("models.csv")
    assert set(models["target"]) == set(parameters())
    for row in models.itertuples():
        model = outline(hub_configs.config_of(row.id), torch.float16)
        sizes = sum(one.numel() for one in model.parameters()), model.get_input_embeddings().weight.numel()
        assert parameters()[row.target] == sizes


def test_a_printed_time_is_a_share_of_the_bandwidth(rows):
    """OPT-Tree prints 51.89 tokens/s of LLaMA-2 7B on an RTX 4090, and a speedup of 2.56."""
    least = 2 * (6738415616 - 32000 * 4096) / 1.008e12
    row = rows.loc[("opt_tree", "table1", "llama2_7b", "mt_bench", "0")]
    share = least * 51.89
    assert row[["baseline", "least", "share"]].tolist() == [
        f"{1e3 / 51.89:.1f}",
        f"{1e3 * least:.1f}",
        f"{100 * share:.0f}",
    ]
    assert float(row["speedup"].split()[0]) == 2.56
    assert row[list(AT)].tolist() == [f"{2.56 * share / 0.7:.2f}", f"{2.56 * share / 0.9:.2f}"]


def test_a_baseline_follows_from_a_methods_time_and_speedup(rows):
    """Sequoia's Table 5 prints 0.56 s and 9.96 times; DySpec's Table 4 times alone."""
    row = rows.loc[("sequoia", "table5", "llama2_70b", "c4", "0")]
    assert row["baseline"] == f"{1e3 * 0.56 * 9.96:.1f} ="
    row = rows.loc[("dyspec", "table4", "llama2_70b", "c4", "0")]
    assert row["speedup"].endswith("(dyspec)")
    assert float(row["speedup"].split()[0]) > 9


def test_no_speedup_grows_and_no_share_is_above_all(rows):
    shares = rows["share"].astype(float)
    assert shares.between(1, 100).all()
    known = rows[rows["speedup"] != "–"]
    printed = known["speedup"].str.split().str[0].astype(float)
    over = known[list(AT)].astype(float)
    assert (over.le(printed, axis=0)).all(axis=None)
    assert (over["at_90%"] < over["at_70%"]).all()


def test_a_card_of_which_memory_is_not_told_has_one_bandwidth_or_none():
    assert card("rtx 4090") == card("rtx 4090", 24) == Card(1.008e12, 165.2e12)
    assert card("a100", 80) == Card(1.935e12, 312e12)
    assert card("h100", form="pcie") == Card(2.0e12, 756e12)
    assert card("h100", 80) == Card(3.35e12, 989e12)
    assert card("a100") is None
    assert card("abacus") is None
