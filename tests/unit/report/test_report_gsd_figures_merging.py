"""GSD's Table 5 against plain numpy, and what stands where nothing was merged or run."""

from __future__ import annotations

import numpy as np
import pytest
from gsd_figure_fills import fill_table5, probe, rewritten
from gsd_fills import add

from bench.artifacts.outputs import NoResultsError
from bench.artifacts.tables import ABSENT, Table, to_csv
from bench.artifacts.verdict import NOT_RUN
from bench.measure.hub_configs import config_of
from bench.papers.gsd.merging import vocabulary
from bench.papers.registry import ARTIFACTS


def build(cells) -> Table:
    (table,) = ARTIFACTS["gsd/table5"].build("table5", cells.load())
    assert isinstance(table, Table)
    return table


def rows(table: Table) -> dict[tuple[int, int], dict[str, str]]:
    """By k and tau."""
    lines = table.frame.assign(k=table.frame["k"].str.extract(r"(\d+)")[0].astype(int)).to_dict("records")
    return {(line["k"], int(line["tau"])): line for line in lines}


def test_means_are_over_merge_edges_beside_the_papers_and_divided_by_the_vocabulary(cells) -> None:
    """Every k and tau that the paper prints is a row; its values stand as printed, and times 32,000."""
    runs = fill_table5(cells)
    table = build(cells)
    steps, found = cells.load().steps, rows(table)
    assert set(found) == {(k, tau) for k in (3, 5, 32) for tau in range(5)}
    assert table.run_ids == {*runs.values()}
    for place, line in found.items():
        if place not in runs:
            assert (line["KL"], line["merges"]) == (NOT_RUN, ABSENT)
            continue
        values = np.concatenate(steps.loc[steps["run_id"] == runs[place], "merge_kl"].tolist())
        assert line["KL"].startswith(f"{values.mean():.3f} ")
        texts = [str(place[1] + 1), str(len(values)), "512", f"{values.mean() / 512:.2e}"]
        assert [line[header] for header in ("n-gram", "merges", "V", "KL / V")] == texts
    for tau, values in {0: (1.19e-4, 1.78e-4, 1.30e-4), 4: (5.13e-7, 8.49e-7, 7.64e-7)}.items():
        for k, value in zip((3, 5, 32), values, strict=True):
            assert float(found[k, tau]["KL published"]) == pytest.approx(value * 32000, abs=5e-4)
            assert float(found[k, tau]["KL / V published"]) == value
    assert to_csv(table)


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
    assert any("1 of 2 tau" in note for note in build(cells).notes) == told


def test_tau_is_the_context_whatever_the_drafter_counts(cells) -> None:
    run_id = probe(cells, 5, 2, 0.1, params={"k": 5, "tau": 2, "tau_as_context": False})
    table = build(cells)
    assert [place for place, ids in zip(rows(table), table.runs, strict=True) if ids] == [(5, 1)]
    assert table.run_ids == {run_id}


def test_no_merge_and_failed_runs(cells) -> None:
    probe(cells, 3, 0, 0.1)
    probe(cells, 3, 4, 0.1, alias=0)
    probe(cells, 5, 0, 0.1, status="oom")
    found = rows(build(cells))
    assert [found[3, 4][header] for header in ("KL", "merges", "KL / V")] == [ABSENT, "0", ABSENT]
    assert [found[5, 0][header] for header in ("KL", "merges", "KL / V")] == ["oom", ABSENT, ABSENT]


def test_runs_that_compare_nothing_are_no_table(cells) -> None:
    add(cells, "gsd", params={"k": 4, "tau": 2})
    with pytest.raises(NoResultsError, match="compared"):
        build(cells)
    probe(cells, 5, 0, 0.1, status="oom")
    with pytest.raises(NoResultsError, match="compared"):
        build(cells)


def test_vocabularies_are_those_of_the_models_configs() -> None:
    for model in ("meta-llama/Llama-2-7b-hf", "JackFram/llama-160m", "bigscience/bloom-560m", "facebook/opt-350m"):
        assert vocabulary(model) == config_of(model).vocab_size
    assert vocabulary("tiny/draft") == 512
    assert vocabulary("tiny/nothing") is None
    assert vocabulary("/models/of/my/own") is None


def test_without_a_vocabulary_the_nats_alone_stand(cells, monkeypatch) -> None:
    monkeypatch.setattr("bench.papers.gsd.merging.vocabulary", lambda model: None if model == "tiny/draft" else 32000)
    probe(cells, 3, 0, 0.1)
    line = rows(build(cells))[3, 0]
    assert line["KL"].startswith("0.")
    assert (line["V"], line["KL / V"]) == (ABSENT, ABSENT)
