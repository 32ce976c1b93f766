"""DySpec's Tables 1 to 4: numbers against the rows, who is ahead, the paper's numbers, and what was not run."""

import math

import pytest
from dyspec_fills import P, fill_large, fill_small, resize

from bench import published
from bench.artifacts.outputs import write_all
from bench.artifacts.tables import Table
from bench.artifacts.ties import BUSY_NOTE, UNRANKED
from bench.papers.dyspec.layouts import ahead, lead
from bench.papers.registry import ARTIFACTS
from bench.statistics.intervals import Interval
from bench.statistics.samples import Comparison

SMALL = {"pair": "llama2_7b_jf68m", "published": {"target": "llama2_7b", "draft": "jf68m", "stand_in": False}}
LARGE = {"pair": "offloaded", "published": {"target": "llama2_70b", "draft": "llama2_7b", "stand_in": False}}
RATIOS = [f"DySpec / Sequoia: {metric}{side}" for metric in ("MAL", "speedup") for side in ("", " published")]
NAMES = ("DySpec", "Sequoia")


def build(name: str, cells) -> list[Table]:
    outputs = ARTIFACTS[f"dyspec/{name}"].build(name, cells.load())
    assert all(isinstance(output, Table) for output in outputs)
    return outputs


def mal(cells, run_id: str) -> float:
    steps = cells.load().steps
    return steps.loc[steps["run_id"] == run_id, "acceptance_length"].mean()


def seconds(cells, run_id: str, arm: str = "method") -> float:
    """Per decoded token."""
    prompts = cells.load().prompts
    rows = prompts[(prompts["run_id"] == run_id) & (prompts["arm"] == arm)]
    return rows["decode_s"].sum() / rows["num_decoded_tokens"].sum()


def speedup(cells, run_id: str) -> float:
    return seconds(cells, run_id, "autoregressive") / seconds(cells, run_id)


def test_cells_are_speedup_and_mal_beside_the_papers(cells) -> None:
    runs = fill_small(cells, dataset="openwebtext", temperature=0.0, **SMALL)
    wide, _ = build("table1", cells)
    row = wide.frame.iloc[0]
    for header, method in (("DySpec", "dyspec"), ("Sequoia", "sequoia"), ("SpecInfer", "spec_infer")):
        assert row[header] == f"{speedup(cells, runs[method]):.2f}x ({mal(cells, runs[method]):.2f})"
    printed = [row[f"{header} published"] for header in ("DySpec", "Sequoia", "SpecInfer")]
    assert printed == ["2.28x (3.79)", "2.19x (3.81)", "1.47x (2.54)"]
    assert row[["Target", "Dataset", "temperature"]].tolist() == ["llama2_7b", "openwebtext", "0"]
    assert wide.runs == (" ".join(runs.values()),)


def test_ratios_are_of_the_two_runs_and_of_the_two_printed_numbers(cells) -> None:
    runs = fill_small(cells, dataset="openwebtext", temperature=0.0, **SMALL)
    wide, details = build("table1", cells)
    values = [statistic(cells, runs["dyspec"]) / statistic(cells, runs["sequoia"]) for statistic in (mal, speedup)]
    row = wide.frame.iloc[0]
    assert [row[name].split(" ")[0] for name in RATIOS[::2]] == [f"{value:.3f}" for value in values]
    assert row[RATIOS[1::2]].tolist() == [f"{3.79 / 3.81:.3f} (Sequoia)", f"{2.28 / 2.19:.3f} (DySpec)"]
    frame = details.frame.set_index("Method")
    assert frame.loc["DySpec", ["MAL ratio", "MAL ratio published", "speedup ratio"]].tolist() == ["–"] * 3
    over_spec_infer = mal(cells, runs["dyspec"]) / mal(cells, runs["spec_infer"])
    assert frame.loc["SpecInfer", "MAL ratio"].startswith(f"{over_spec_infer:.3f} [")
    assert frame.loc["SpecInfer", "MAL ratio published"] == f"{3.79 / 2.54:.3f} (DySpec)"


@pytest.mark.parametrize(("ours", "other", "ahead"), [(4.0, 2.0, "DySpec"), (2.0, 4.0, "Sequoia")])
def test_who_is_ahead_is_said_both_ways(ours: float, other: float, ahead: str, cells) -> None:
    cells.add("dyspec", params={"n": 64}, mal=ours, speedup=ours / 2)
    cells.add("sized_sequoia", "sequoia", params={"n": 64, "acceptance": P}, mal=other, speedup=other / 2)
    wide, details = build("table1", cells)
    assert all(wide.frame[name].iloc[0].endswith(f"({ahead})") for name in RATIOS[::2])
    sequoia = details.frame.set_index("Method").loc["Sequoia"]
    assert all(sequoia[f"{metric} ratio"].endswith(f"] ({ahead})") for metric in ("MAL", "speedup"))
    cases = (1, 0) if ahead == "DySpec" else (0, 1)
    words = f"DySpec is ahead of Sequoia in {cases[0]} of 1 settings and behind in {cases[1]}; in 0 they are tied"
    assert sum(words in note for note in wide.notes) == 2


def test_who_is_ahead_is_said_by_name() -> None:
    ends = [(1.1, 1.05, 1.2), (1.1, 0.9, 1.2), (0.9, 0.8, 0.95), (1.1, math.nan, math.nan)]
    ratios = [Interval(*one, 9) for one in ends]
    differences = [Interval(one.value - 1, one.low - 1, one.high - 1, 9) for one in ratios]
    words = [ahead(Comparison(*both), NAMES) for both in zip(differences, ratios, strict=True)]
    assert words == ["DySpec", "neither", "Sequoia", None]
    assert [ahead(value, NAMES) for value in (1.2, 0.8, 1.0, None)] == ["DySpec", "Sequoia", "neither", None]


def test_pairing_takes_out_what_both_runs_share(cells) -> None:
    run_id = cells.add("dyspec", params={"n": 64})
    block = cells.block()
    same = block.ok[0]
    assert same.run_id == run_id
    for metric in ("mal", "speedup"):
        found = lead(metric, same, same)
        assert found is not None
        assert (found.ratio.value, found.ratio.low, found.ratio.high) == pytest.approx((1, 1, 1))
        assert found.ahead == 0


def test_the_papers_own_defeats_are_listed(cells) -> None:
    fill_small(cells)
    notes = " ".join(build("table1", cells)[0].notes)
    lost = "openwebtext at temperature 0 (3.79 < 3.81); cnn_dm at temperature 0 (3.97 < 4.04); "
    lost += "cnn_dm at temperature 0.6 (3.18 < 3.22)."
    assert f"by MAL, DySpec is behind Sequoia in 3 of 10 settings: {lost}" in notes
    assert "by speedup, DySpec is behind Sequoia in no setting." in notes


def test_rows_of_one_published_number_are_no_order_of_each_other(cells) -> None:
    """Layers and a call per node draw the same trees: how they lie apart says nothing of the paper."""
    options = {"dataset": "c4", "temperature": 0.0, "conversations": 8, "size": 64, **SMALL}
    options["published"] = SMALL["published"] | {"stand_in": True}
    for drafter, method, mal_of_it in (("dyspec", "dyspec", 4.0), ("dyspec_heap", "dyspec_heap", 5.0)):
        cells.add(drafter, method, params={"n": 64}, mal=mal_of_it, **options)
    cells.add("sized_sequoia", "sequoia", params={"n": 64, "acceptance": P}, mal=2.0, **options)
    frame = build("table1", cells)[1].frame.set_index("Method")
    verdicts = frame["verdict MAL"]
    assert verdicts[["DySpec", "DySpec, a call per node"]].tolist() == ["order holds", "order holds"]


def test_table_2_prints_one_speedup_twice_and_that_is_no_defeat(cells) -> None:
    fill_small(
        cells,
        dataset="mt_bench",
        temperature=0.0,
        **SMALL | {"published": {**SMALL["published"], "target": "llama2_13b"}},
    )
    wide, _ = build("table2", cells)
    assert wide.frame[RATIOS[3]].tolist() == ["1.000 (neither)"]
    assert "by speedup, DySpec is behind Sequoia in no setting." in " ".join(wide.notes)


def test_details_have_mean_size_accepted_tokens_and_plain_seconds(cells) -> None:
    runs = fill_small(cells)
    _, details = build("table1", cells)
    frame = details.frame.set_index("Method")
    steps = cells.load().steps
    own = steps[steps["run_id"] == runs["dyspec"]]
    assert frame.loc["DySpec", ["N", "n mean", "MAL - 1"]].tolist() == [
        "65",
        "64.0",
        f"{own['num_accepted'].mean():.2f}",
    ]
    assert frame.loc["Sequoia", "s/token"].startswith(f"{seconds(cells, runs['sequoia']):.5f} [")
    base = cells.load().prompts.query("arm == 'autoregressive'")[["decode_s", "num_decoded_tokens"]].sum()
    assert frame.loc["plain", "s/token"].startswith(f"{base['decode_s'] / base['num_decoded_tokens']:.5f} [")
    assert details.runs == (*runs.values(), "")
    assert "s/token published" not in details.frame


def test_table_4_is_in_seconds_with_plain_decoding_beside(cells) -> None:
    runs = fill_large(cells, **LARGE)
    wide, details = build("table4", cells)
    row = wide.frame.iloc[0]
    assert row["DySpec"] == f"{seconds(cells, runs['dyspec']):.5f} ({mal(cells, runs['dyspec']):.2f})"
    columns = [f"{name} published" for name in ("DySpec", "Sequoia", "SpecInfer", "plain")]
    assert row[columns].tolist() == ["0.87648 (7.02)", "0.65835 (8.80)", "1.02 (6.24)", "5.2928"]
    assert row[RATIOS[1]] == f"{7.02 / 8.80:.3f} (Sequoia)"
    assert row[RATIOS[3]] == f"{0.65835 / 0.87648:.3f} (Sequoia)"
    frame = details.frame.set_index("Method")
    assert frame.loc["DySpec", "speedup published"] == f"{5.2928 / 0.87648:.2f}"
    assert frame.loc["SpecInfer", "speedup published"] == "–"  # its seconds are of another device
    notes = " ".join(wide.notes)
    assert "threshold and cap here: 0.001 and 768." in notes
    assert notes.count("behind Sequoia in 3 of 6 settings: c4 at temperature 0.6 (") == 2


def test_of_times_that_are_too_noisy_none_is_ahead_and_none_counts(cells) -> None:
    """The autoregressive arm of one run of c4 took four times as long; those of cnn_dm took as long as each other."""
    for dataset, slow in (("c4", 0.016), ("cnn_dm", 0.004)):
        options = {"dataset": dataset, "temperature": 0.6}
        cells.add("dyspec", params={"n": 64}, mal=4.0, speedup=2.0, **options)
        cells.add("sized_sequoia", "sequoia", params={"n": 64}, mal=2.0, base_step_s=slow, **options)
    wide, details = build("table1", cells)
    noisy, quiet = (wide.frame[wide.frame["Dataset"] == name].iloc[0] for name in ("c4", "cnn_dm"))
    assert noisy[RATIOS[2]].endswith(f"]{UNRANKED}")
    assert quiet[RATIOS[2]].endswith("] (DySpec)")
    assert noisy[RATIOS[0]].endswith("] (DySpec)"), "MAL knows no time"
    of_sequoia = details.frame[details.frame["Method"] == "Sequoia"].set_index("Dataset")
    assert of_sequoia["speedup ratio"].str.endswith(UNRANKED).to_dict() == {"c4": True, "cnn_dm": False}
    assert of_sequoia["speedup"].str.endswith(UNRANKED).to_dict() == {"c4": True, "cnn_dm": False}
    counted = "DySpec is ahead of Sequoia in {0} of {0} settings and behind in 0; in 0 they are tied."
    assert f"Here, by MAL, {counted.format(2)}" in wide.notes
    assert f"Here, by speedup, {counted.format(1)} Left out, since times are too noisy (!): 1." in wide.notes
    assert [note for note in wide.notes if note == BUSY_NOTE] == [BUSY_NOTE]


def test_where_all_times_are_too_noisy_nothing_is_counted(cells) -> None:
    cells.add("dyspec", params={"n": 64}, speedup=2.0)
    cells.add("sized_sequoia", "sequoia", params={"n": 64}, base_step_s=0.016)
    notes = build("table1", cells)[0].notes
    out = "Left out, since times are too noisy (!): 1."
    assert f"Here, by speedup, DySpec is set against Sequoia in no setting. {out}" in notes


def test_table_4_says_what_ends_the_trees(cells) -> None:
    runs = fill_large(cells)
    other = fill_large(cells, dataset="c4")["dyspec"]
    wide, details = build("table4", cells)
    frame = details.frame.set_index(["Dataset", "Method"])
    assert frame.loc["cnn_dm", "at cap"].tolist() == ["100%", "–", "–", "–"]
    assert frame.loc[("cnn_dm", "DySpec"), "depth mean"] == "8.0"
    notes = " ".join(wide.notes)
    assert "In every step of 2 of 2 settings the tree has as many nodes as the cap" in notes
    assert "unused" not in notes
    resize(cells, runs["dyspec"], 767)
    wide, details = build("table4", cells)
    frame, notes = details.frame.set_index(["Dataset", "Method"]), " ".join(wide.notes)
    steps = len(cells.store.read("steps", [other]))
    assert frame.loc[("cnn_dm", "DySpec"), "at cap"] == f"{100 * (steps - 1) / steps:.1f}%"
    assert "In every step of 1 of 2 settings" in notes
    assert "may leave part of its budget unused" in notes
    resize(cells, other, 767)
    assert "the threshold never does" not in " ".join(build("table4", cells)[0].notes)


def test_the_notes_say_how_much_was_decoded_here(cells) -> None:
    fill_small(cells)
    fill_small(cells, dataset="c4", conversations=3)
    notes = build("table1", cells)[0].notes
    assert any(note.endswith("Here: 3 / 6 conversations of each, at most 64 new tokens.") for note in notes)


def test_specinfers_numbers_in_table_4_are_sequoias() -> None:
    keys = ["dataset", "temperature", "metric"]
    ours, theirs = (
        published.find(paper, table, method="specinfer", metric="tokens_per_step")[[*keys, "value", "hardware"]]
        for paper, table in (("dyspec", "table4"), ("sequoia", "table5"))
    )
    both = ours.merge(theirs, on=[*keys, "value"])
    assert len(both) == len(ours) == 6
    assert set(both["hardware_x"]) == {"L40 offload"}


def test_what_was_not_run_is_absent_and_what_failed_is_said(cells) -> None:
    dyspec = cells.add("dyspec", params={"n": 64}, mal=3.0)
    failed = cells.add("spec_infer_8x8", "spec_infer", status="oom", lossless=False)
    wide, details = build("table1", cells)
    assert wide.frame[["Sequoia", "SpecInfer", RATIOS[0], RATIOS[2]]].iloc[0].tolist() == ["–", "oom", "–", "–"]
    frame = details.frame.set_index("Method")
    assert frame.loc[["Sequoia", "SpecInfer"], "speedup"].tolist() == ["–", "oom"]
    assert frame.loc[["DySpec", "Sequoia", "SpecInfer"], "lossless"].tolist() == ["yes", "–", "–"]
    assert frame.loc[["Sequoia", "SpecInfer"], "MAL ratio"].tolist() == ["–", "–"]
    assert frame.loc[["Sequoia", "SpecInfer"], "verdict MAL"].tolist() == ["not run", "not run"]
    assert wide.runs == (f"{dyspec} {failed}",)
    assert not [note for note in wide.notes if note.startswith("Here, by")]


def test_a_threshold_tree_is_no_arm_of_the_small_tables(cells) -> None:
    cells.add("dyspec_threshold", params={"n": 64})
    cells.add("sized_sequoia", "sequoia", params={"n": 64})
    assert build("table1", cells)[0].frame["DySpec"].tolist() == ["–"]


def test_a_stand_in_stands_for_the_models_of_each_table(cells) -> None:
    fill_small(cells, dataset="c4", temperature=0.0)
    for name, target, printed in (("table1", "llama2_7b", "3.15x (5.25)"), ("table3", "llama2_70b", "9.42x (9.10)")):
        wide, _ = build(name, cells)
        assert wide.frame["Target"].tolist() == [f"tiny (for {target})"]
        assert wide.frame["DySpec published"].tolist() == [printed]
        assert any("absolute values are not comparable" in note for note in wide.notes)


@pytest.mark.parametrize(("name", "rows"), [("table1", 10), ("table2", 10), ("table3", 10), ("table4", 6)])
def test_without_runs_all_rows_of_the_paper_are_there(name: str, rows: int, cells) -> None:
    wide, details = build(name, cells)
    assert len(wide.frame) == rows
    assert len(details.frame) == 4 * rows
    assert "not run" in wide.title
    columns = [column for column in wide.frame if column.endswith("published")]
    assert (wide.frame[columns] != "–").all(axis=None)
    assert (wide.frame[RATIOS[::2]] == "–").all(axis=None)


@pytest.mark.parametrize(("name", "fill"), [("table1", fill_small), ("table4", fill_large)])
def test_one_conversation_has_a_ratio_but_no_winner(name: str, fill, cells, tmp_path) -> None:
    fill(cells, conversations=1)
    outputs = build(name, cells)
    assert len(write_all(outputs, tmp_path)) == 6
    assert all(outputs[0].frame[column].iloc[0].endswith("(no interval)") for column in RATIOS[::2])
    assert all("nan" not in text for output in outputs for text in output.frame.to_numpy().ravel())
