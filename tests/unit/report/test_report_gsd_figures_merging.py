"""GSD's Table 5 against plain numpy, and what stands where nothing was merged or run."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gsd_figure_fills import fill_table5, probe, rewritten
from gsd_fills import add

from bench.artifacts.outputs import NoResultsError
from bench.artifacts.tables import ABSENT, Table, to_csv
from bench.measure.hub_configs import config_of
from bench.papers.gsd.merging import vocabulary
from bench.papers.registry import ARTIFACTS
from bench.prompts.embedded import TINY


def build(cells) -> tuple[Table, Table]:
    wide, details = ARTIFACTS["gsd/table5"].build("table5", cells.load())
    assert isinstance(wide, Table)
    assert isinstance(details, Table)
    return wide, details


def test_means_are_over_merge_edges_and_in_the_details_divided_by_the_vocabulary(cells) -> None:
    runs = fill_table5(cells)
    wide, details = build(cells)
    steps = cells.load().steps
    assert details.runs == tuple(runs.values())
    by_k = wide.frame.set_index("k")
    size = json.loads((TINY / "draft" / "config.json").read_text())["vocab_size"]
    for ((k, tau), run_id), (_, row) in zip(runs.items(), details.frame.iterrows(), strict=True):
        values = np.concatenate(steps.loc[steps["run_id"] == run_id, "merge_kl"].tolist())
        label = "unlimited (32)" if k == 32 else str(k)
        assert row[["k", "tau", "n-gram", "merges", "V"]].tolist() == [
            *(label, str(tau), str(tau + 1), str(len(values)), str(size))
        ]
        assert row["KL"].startswith(f"{values.mean():.3f} [")
        assert row["KL / V"] == f"{values.mean() / size:.2e}"
        assert by_k.loc[label, f"tau {tau}"] == f"{values.mean():.3f}"


def test_the_wide_table_has_the_papers_rows_and_columns(cells) -> None:
    runs = fill_table5(cells)
    wide, details = build(cells)
    assert wide.frame["k"].tolist() == ["3", "5", "unlimited (32)"]
    assert [name for name in wide.frame if "published" not in name][2:] == [f"tau {tau}" for tau in range(5)]
    printed = {0: (1.19e-4, 1.78e-4, 1.30e-4), 4: (5.13e-7, 8.49e-7, 7.64e-7)}
    for tau, values in printed.items():
        assert wide.frame[f"tau {tau} published x V"].tolist() == [f"{value * 32000:.3f}" for value in values]
    assert wide.frame.loc[1, [f"tau {tau}" for tau in range(5)]].tolist() == ["not run"] * 5
    assert wide.frame.loc[0, ["tau 3", "tau 4"]].tolist() == ["not run"] * 2
    assert details.frame["KL published"].tolist()[:2] == ["1.19e-04", "2.70e-06"]
    assert wide.runs[0] == " ".join(runs[3, tau] for tau in range(3))
    assert wide.runs[1] == ""
    assert to_csv(wide)
    for word in ("tiny", "gsm8k", "temperature 0", "Test CPU"):
        assert word in wide.title
    assert "V = 32000" in wide.legend["tau 0 published x V"]
    assert "our inference" in wide.legend["tau 0 published x V"]
    assert "1000 examples" in " ".join(wide.notes)
    assert "absolute values are not comparable" in " ".join(wide.notes)


@pytest.mark.parametrize(("theta_prob", "told"), [(0.2, True), (0.1, False), (0.0, False)])
def test_why_two_k_have_one_divergence_is_told_where_the_threshold_leaves_no_more_children(
    theta_prob: float, told: bool, cells
) -> None:
    """At one tau they have the same merge edges, at another one not; 0.1 leaves 10 children, of which k = 5 has 5."""
    params = {"tau_as_context": True, "theta_prob": theta_prob}
    runs = {
        (k, tau): add(cells, "gsd_probe", "gsd", params=params | {"k": k, "tau": tau}, kl=0.1 * k)
        for k in (3, 5, 32)
        for tau in (0, 1)
    }
    for k in (3, 5, 32):
        rewritten(cells, runs[k, 1], "merge_kl", lambda rng: [float(rng.uniform())])
    notes = [note for note in build(cells)[0].notes if "have one KL" in note]
    assert len(notes) == told
    assert all("k = 5 and unlimited (32) have one KL at 1 of 2 tau" in note and "at most 5" in note for note in notes)


def test_tau_is_the_context_whatever_the_drafter_counts(cells) -> None:
    probe(cells, 5, 2, 0.1, params={"k": 5, "tau": 2, "tau_as_context": False})
    _, details = build(cells)
    assert details.frame[["tau", "n-gram"]].to_numpy().tolist() == [["1", "2"]]
    assert details.frame["KL published"].tolist() == ["4.70e-06"]


def test_no_merge_and_failed_runs(cells) -> None:
    probe(cells, 3, 0, 0.1)
    probe(cells, 3, 4, 0.1, alias=0)
    probe(cells, 5, 0, 0.1, status="oom")
    wide, details = build(cells)
    assert wide.frame.loc[0, "tau 4"] == ABSENT
    assert wide.frame.loc[1, "tau 0"] == "oom"
    assert details.frame["merges"].tolist()[1:] == ["0", ABSENT]
    assert details.frame["KL"].tolist()[1:] == [ABSENT, "oom"]
    assert details.frame["KL / V"].tolist()[1:] == [ABSENT, ABSENT]


def test_runs_that_compare_nothing_are_no_table(cells) -> None:
    add(cells, "gsd", params={"k": 4, "tau": 2})
    with pytest.raises(NoResultsError, match="compared"):
        ARTIFACTS["gsd/table5"].build("table5", cells.load())
    probe(cells, 5, 0, 0.1, status="oom")
    with pytest.raises(NoResultsError, match="compared"):
        ARTIFACTS["gsd/table5"].build("table5", cells.load())


def test_vocabularies_are_those_of_the_models_configs() -> None:
    for model in ("meta-llama/Llama-2-7b-hf", "JackFram/llama-160m", "bigscience/bloom-560m", "facebook/opt-350m"):
        assert vocabulary(model) == config_of(model).vocab_size
    assert vocabulary("tiny/draft") == 512
    assert vocabulary("tiny/nothing") is None
    assert vocabulary("/models/of/my/own") is None


def test_without_a_vocabulary_the_nats_alone_stand(cells, monkeypatch) -> None:
    monkeypatch.setattr("bench.papers.gsd.merging.vocabulary", lambda model: None if model == "tiny/draft" else 32000)
    probe(cells, 3, 0, 0.1)
    wide, details = build(cells)
    assert wide.frame.loc[0, "tau 0"].startswith("0.")
    assert details.frame.loc[0, ["V", "KL / V"]].tolist() == [ABSENT, ABSENT]
