"""`specdec_trees.check`: each question is answered no where one thing is wrong, and yes of what is committed."""

import dataclasses
import functools
import json
import shutil
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cells import config, execute
from edits import CELLS, EDITS, copied, fitted, folder, tokens

from specdec_core.errors import SpecdecError
from specdec_trees.check import __main__ as command
from specdec_trees.check.columns import _columns
from specdec_trees.check.folder import _KEYS, LOOKED_AT, Findings, _misfits, check
from specdec_trees.check.rules import RULES
from specdec_trees.check.unheld import UNHELD
from specdec_trees.configs.cells import scientific_config
from specdec_trees.measure import provenance
from specdec_trees.rerun import differing, rerun
from specdec_trees.results.digests import digest_of, output_sha256
from specdec_trees.results.identity import identity
from specdec_trees.results.parquet import read_table, write_table
from specdec_trees.results.partial import Partial
from specdec_trees.results.progress import Planned
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, TABLES, PromptRow, RunRow, StepRow
from specdec_trees.results.store import Store, experiments
from specdec_trees.statistics.aggregates import ENDS, of_all

CELL = ("pair=tiny", "dataset=mini", "drafter=chain4", "runtime.warmup_conversations=0", "limit=2")
SHORT = (*CELL, "decoding.max_new_tokens=4")
REFERENCE = Path(__file__).parents[3] / "results" / "reference"
REVISION = "a" * 40


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A cell of committed code, by what its row says, and its plan."""
    root = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "own_git_state", lambda: (REVISION, False))
        assert execute(root, *SHORT) == "ok"
    cells = ({"pair": "tiny", "config": identity(scientific_config(config(*SHORT)))},)
    Planned(overrides=(), pairs=("tiny",), cells=cells).write(root / "default")
    return root


@pytest.fixture
def root(measured, tmp_path, monkeypatch):
    """A copy to change, whose revision is known."""
    shutil.copytree(measured, tmp_path / "results")
    monkeypatch.setattr(command, "unknown_revisions", lambda revisions, root: sorted(revisions - {REVISION}))
    return tmp_path / "results"


def change(root, table, column, value):
    """Another value in the first row that has one."""
    (path,) = (root / "default" / table).glob("*.parquet")
    rows = read_table(path, TABLES[table])
    place = rows.schema.get_field_index(column)
    values = rows[column].to_pylist()
    first = next(number for number, old in enumerate(values) if old is not None)
    values[first] = value(values[first]) if callable(value) else value
    write_table(
        path, rows.set_column(place, rows.schema.field(column), pa.array(values, rows.schema.field(column).type))
    )


def answers(root, capsys):
    """What is printed to each question, and the exit status."""
    status = command.main([str(root)])
    lines = capsys.readouterr().out.splitlines()
    return {line[:15].strip(): line[16:].split(":")[0] for line in lines if line[0] != " "} | {"status": status}, lines


def test_all_is_well(root, capsys):
    found, lines = answers(root, capsys)
    assert found["status"] == 0, lines
    assert [found[question] for question in ("complete", "committed code", "lossless", "rules")] == ["yes"] * 4
    assert found["digest"] == digest_of(root)
    assert "4 of 4 compared outputs" in "\n".join(lines)


@pytest.mark.parametrize(
    ("table", "column", "value", "question", "said"),
    [
        ("runs", "status", "interrupted", "complete", "missing"),
        ("runs", "git_dirty", True, "committed code", "ran with changes to"),
        ("runs", "git_revision", "b" * 40, "committed code", "is not in this checkout"),
        ("runs", "mal", lambda old: old * 1.01, "rules", "mal is"),
        ("runs", "speedup", lambda old: old + 0.01, "rules", "speedup is"),
        ("runs", "config", lambda old: old.replace('"seed": 0', '"seed": 1'), "rules", "its config is that of"),
        ("prompts", "output_ids", lambda old: [*old[:-1], old[-1] + 1], "rules", "not what was recorded"),
        ("prompts", "decode_s", lambda old: old / 2, "rules", "is"),
        ("prompts", "turn", 1, "rules", "rows of prompts are there twice"),
        ("steps", "num_accepted", lambda old: old + 1, "rules", "acceptance_rate_depth is"),
        ("steps", "score_s", lambda old: old * 1.5, "rules", "its steps are not those of its row"),
        ("steps", "kept", lambda old: old - 1, "rules", "its steps are not those of its row"),
    ],
)
def test_one_thing_is_wrong(table, column, value, question, said, root, capsys):
    change(root, table, column, value)
    found, lines = answers(root, capsys)
    assert found["status"] == 1
    assert found[question] == "NO"
    assert any(said in line for line in lines if line[0] == " "), lines


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("experiment", "other"), ("schema_version", 0), ("pair", "own"), ("target_id", "tiny/other")),
        *(("draft_id", "tiny/other"), ("dataset", "mt_bench"), ("drafter", "chain8"), ("method", "eagle")),
        *(("drafter_params", "{}"), ("verifier", "greedy"), ("temperature", 0.6), ("top_p", 0.9), ("seed", 1)),
        *(("max_new_tokens", 5), ("ignore_eos", True), ("node_order", "dfs"), ("graphs", "compile")),
        *(("dtype", "float16"), ("lossless", False), ("num_starts", 0)),
    ],
)
def test_a_column_that_does_not_follow_is_named(column, value, root):
    assert not check(root).altered
    change(root, "runs", column, value)
    assert any("experiment" if column == "experiment" else f"{column} is" in said for said in check(root).altered)


def test_old_rows_lack_what_there_was_no_choice_of(root):
    for column in ("ignore_eos", "node_order", "graphs", "num_starts"):
        change(root, "runs", column, None)
    change_all(root, "prompts", "start", lambda _: None)
    assert not check(root).altered


def change_all(root, table, column, value):
    """Another value in all rows of the experiment."""
    for path in (root / "default" / table).glob("*.parquet"):
        rows = read_table(path, TABLES[table])
        field = rows.schema.field(column)
        values = pa.array([value(old) for old in rows[column].to_pylist()], field.type)
        write_table(path, rows.set_column(rows.schema.get_field_index(column), field, values))


@pytest.mark.parametrize("arm", ["method", "autoregressive"])
def test_where_outputs_part_is_recomputed(arm, root, capsys):
    """One more token is another, with a digest that fits; who wrote the row says that nothing parted."""
    tokens = [*change_first(root, "output_ids", lambda old: [old[0] + 1, *old[1:]], arm)]
    change_first(root, "output_sha256", lambda _: output_sha256(tokens), arm)
    found, lines = answers(root, capsys)
    assert found["rules"] == "NO"
    said = "identical is True and first_divergence None, and its two outputs make False and 0"
    assert any(said in line for line in lines), lines
    change_first(root, "identical", lambda _: False)
    change_first(root, "first_divergence", lambda _: 0)
    change_first(root, "divergence_gap", lambda _: 3.0)
    assert not any("two outputs" in sentence for sentence in check(root).altered)
    assert len(check(root).lossy) == 1


def test_an_arm_that_is_missing_is_seen(root):
    without(root, "prompts", lambda row: row["arm"] == "autoregressive" and row["turn"] == 0)
    assert any("one of its two arms is missing" in sentence for sentence in check(root).altered)


def test_a_part_of_a_folder_can_be_checked(root):
    shutil.copytree(root, root.parent / "all" / "of")
    for part in (root.parent / "all", root.parent / "all" / "of", root.parent / "all" / "of" / "default"):
        found = check(part)
        assert found.cells == 1
        assert not found.altered, part


def test_without_a_baseline_nobody_knows_whether_it_is_lossless(root, capsys):
    without(root, "prompts", lambda row: row["arm"] == "autoregressive")
    change_all(root, "prompts", "identical", lambda _: None)
    found, lines = answers(root, capsys)
    assert found["lossless"] == "not known"
    assert any("(chain4) has no output of the target to compare with" in line for line in lines), lines


def test_prompts_that_were_left_out_are_missed(root, monkeypatch):
    monkeypatch.setattr(provenance, "own_git_state", lambda: (REVISION, False))
    assert execute(root, *SHORT, "drafter=chain8") == "ok"
    assert not check(root).altered
    path = next((root / "default" / "prompts").glob("*.parquet"))
    first = read_table(path, TABLES["prompts"])["prompt_id"][0].as_py()
    for table in ("prompts", "steps"):
        without(root, table, lambda row: row["prompt_id"] == first, path.name)
    assert any("are of the same prompts, and have rows of others" in sentence for sentence in check(root).altered)


def without(root, table, left_out, name="*.parquet"):
    """Leave rows out."""
    for path in (root / "default" / table).glob(name):
        rows = read_table(path, TABLES[table])
        write_table(path, rows.filter(pa.array([not left_out(row) for row in rows.to_pylist()])))


def test_a_cell_that_was_begun_is_incomplete(root, capsys):
    Partial(root / "default", "0" * 12).begin({}, None)
    Partial(root / "default", *Store(root, "default").read("runs")["run_id"]).begin({}, None)
    (root / "elsewhere").mkdir()
    Partial(root / "elsewhere", "1" * 12).begin({}, None)
    found, _ = answers(root, capsys)
    assert found["complete"] == "NO"
    begun = [f"{name}: cell {run_id} was begun" for name, run_id in (("default", "0" * 12), ("elsewhere", "1" * 12))]
    assert [sentence.partition(";")[0] for sentence in check(root).incomplete] == begun


def test_an_output_that_left_the_targets(root, capsys):
    for column, value in (("identical", False), ("first_divergence", 2), ("divergence_gap", 0.25)):
        change_first(root, column, lambda _, value=value: value)
    found, lines = answers(root, capsys)
    assert found["lossless"] == "NO"
    assert any("at token 2, 0.25 below" in line for line in lines), lines
    for dtype, largest, answer in (
        *(("float16", None, "NO"), ("float16", 40.0, "yes"), ("float16", 15.0, "NO"), ("bfloat16", 15.0, "yes")),
        *(("float32", 1e9, "NO"), ("bfloat16", 3.0, "NO")),
    ):
        change(root, "runs", "dtype", dtype)
        change_first(root, "largest_logit", lambda _, largest=largest: largest)
        found, lines = answers(root, capsys)
        assert found["lossless"] == answer, (dtype, largest)
        assert any("1 of them but for a tie" in line for line in lines) == (answer == "yes"), lines


def test_an_output_that_leaves_the_targets_in_float32_is_lossy_whatever_was_said_of_it(root, capsys):
    change(root, "runs", "dtype", "bfloat16")
    change_first(root, "identical_float32", lambda _: True)
    found, lines = answers(root, capsys)
    assert found["lossless"] == "yes"
    assert any("1 were decoded again in float32" in line for line in lines), lines
    change_first(root, "identical_float32", lambda _: False)
    assert answers(root, capsys)[0]["lossless"] == "NO"
    assert len(check(root).lossy) == 1


def change_first(root, column, value, arm="method"):
    """Another value in an arm's row of the first prompt; the new one."""
    (path,) = (root / "default" / "prompts").glob("*.parquet")
    rows = read_table(path, TABLES["prompts"])
    values, keys = rows[column].to_pylist(), [(row["prompt_id"], row["arm"]) for row in rows.to_pylist()]
    place = keys.index((keys[0][0], arm))
    values[place] = value(values[place])
    field = rows.schema.field(column)
    write_table(path, rows.set_column(rows.schema.get_field_index(column), field, pa.array(values, field.type)))
    return values[place]


def test_a_flipped_bit_is_seen(root, capsys):
    (path,) = (root / "default" / "steps").glob("*.parquet")
    data = path.read_bytes()
    output = pq.ParquetFile(path).metadata.row_group(0).column(0)
    place = output.data_page_offset + output.total_compressed_size - 1  # the last byte of its values
    path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
    found, lines = answers(root, capsys)
    assert found["rules"] == "NO"
    assert any("Skipped" in line and "steps" in line for line in lines), lines


def test_rows_that_no_run_is_for(root):
    (path,) = (root / "default" / "runs").glob("*.parquet")
    path.unlink()
    assert any("which no row of runs is for" in sentence for sentence in check(root).altered)


def test_a_plan_of_which_nothing_was_run_is_incomplete(root):
    shutil.copytree(root / "default", root / "paper" / "table1", ignore=shutil.ignore_patterns("*.parquet"))
    (sentence,) = check(root).incomplete
    assert sentence.startswith("paper/table1: ")


def test_without_a_plan_nobody_knows_whether_it_is_complete(root, capsys):
    (root / "default" / "plan.json").unlink()
    found, _ = answers(root, capsys)
    assert (found["complete"], found["status"]) == ("not known", 3)


def test_a_plan_that_cannot_be_read_is_never_done(root, capsys):
    (root / "default" / "plan.json").write_text("{}")
    found, lines = answers(root, capsys)
    assert (found["complete"], found["status"]) == ("NO", 1)
    assert any("its plan.json cannot be read" in line for line in lines), lines


def test_rules_count_rows_that_have_values(root):
    whole = check(root).held
    change_all(root, "steps", "expected_acceptance", lambda _: None)
    found = check(root)
    assert whole["expected acceptance"] > found.held["expected acceptance"] == 0
    assert found.empty["steps.expected_acceptance"] == whole["expected acceptance"]


def test_a_folder_with_doubled_rows_says_that_no_rule_was_looked_at(root, capsys):
    change(root, "prompts", "turn", 1)
    _, lines = answers(root, capsys)
    assert any("no rule was looked at" in line for line in lines), lines


def test_the_digest_is_the_same_when_packed(root):
    before = digest_of(root)
    assert Store(root, "default").pack()
    assert digest_of(root) == before


def test_a_changed_value_changes_the_digest(root):
    before = digest_of(root)
    change(root, "prompts", "decode_s", lambda old: old * (1 + 1e-12))
    assert digest_of(root) != before


def test_there_must_be_something(tmp_path, capsys):
    assert command.main([str(tmp_path)]) == 2
    assert "there are no results in" in capsys.readouterr().err


def test_revisions_are_looked_for_in_the_checkout():
    found = command.unknown_revisions({REVISION}, Path(__file__).parent)
    assert found == [REVISION]


@pytest.mark.long
def test_the_committed_results_fit_together():
    found = check(REFERENCE)
    assert not found.altered
    assert not found.lossy
    assert not found.uncommitted
    assert found.cells == sum(len(pd.unique(Store(REFERENCE, store).read("runs")["run_id"])) for store in names())


def test_cells_are_decoded_again(root, monkeypatch):
    """Tokens that were changed alike in both arms are seen; models that are not here are said."""
    monkeypatch.setattr(provenance, "own_git_state", lambda: (REVISION, False))
    assert [fits for fits, _ in rerun(root, 2, None)] == [True]
    store = Store(root, "default")
    tables = {table: store.read(table) for table in ("runs", "prompts", "steps")}
    (row,) = tables["runs"].to_dict("records")
    name = tables["prompts"]["prompt_id"][0]
    assert differing(row, tables, 2, None) == {"tokens": [], "steps": []}
    last = tables["steps"][(tables["steps"]["prompt_id"] == name) & (tables["steps"]["turn"] == 0)].index[-1]
    without_last = tables | {"steps": tables["steps"].drop(last)}
    assert differing(row, without_last, 2, None) == {"tokens": [], "steps": [name]}
    tokens((METHOD, AUTOREGRESSIVE), lambda tables: list(tables["runs"]["run_id"]))(tables)
    assert differing(row, tables, 2, None) == {"tokens": [name], "steps": []}
    gone = json.loads(row["config"])
    gone["pair"]["target"] |= {"id": "nobody/nothing", "files_sha256": None}
    with pytest.raises(SpecdecError):
        differing(row | {"config": json.dumps(gone), "target_revision": None}, tables, 2, None)
    for name in ("os.system", "specdec_core.openmp.os.system", "specdec_core.nothing", "specdec_core.models"):
        gone["verifier"]["_target_"] = name
        with pytest.raises(ValueError, match=name):
            differing(row | {"config": json.dumps(gone)}, tables, 2, None)


@functools.cache
def of_folder(number):
    return folder(REFERENCE, number)


def looked_at(tables, experiment):
    """What rules say of an experiment's tables, and how many rows each entry of the other list is about."""
    findings = Findings()
    return list(_misfits(tables, REFERENCE / experiment, findings)), findings.unheld


@pytest.mark.parametrize("number", range(len(CELLS)))
def test_committed_cells_keep_all_rules(number):
    experiment, tables = of_folder(number)
    assert not looked_at(tables, experiment)[0]


@pytest.mark.few(8)
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_an_edit_is_seen_or_among_what_cannot_be_held(edit):
    experiment, tables = of_folder(edit.folder)
    tables = copied(tables)
    edit.change(tables)
    if edit.fit:
        fitted(tables)
    sentences, unheld = looked_at(tables, experiment)
    assert bool(sentences) == (edit.unheld is None), sentences
    assert edit.unheld is None or unheld[edit.unheld]


def test_no_name_stands_in_both_lists():
    names = [*LOOKED_AT, *(rule.name for rule in RULES), *(entry.name for entry in UNHELD)]
    assert len(names) == len(set(names))


def test_every_column_is_held_or_among_what_cannot_be_held():
    _, tables = of_folder(0)
    row = next(iter(tables["runs"].to_dict("records")))
    follows = {
        *of_all(tables["prompts"], tables["steps"], []),
        *ENDS,
        *_columns(json.loads(row["config"]), finished=True),
    }
    held = {column for rule in RULES for column in rule.columns} | follows
    held |= {key for keys in _KEYS.values() for key in keys}
    held |= {"experiment", "baseline_of", "recording", "start", "git_dirty"}
    told = {column for entry in UNHELD for column in entry.columns}
    columns = {field.name for row in (RunRow, PromptRow, StepRow) for field in dataclasses.fields(row)}
    assert columns <= held | told, columns - held - told


def names():
    return [store.experiment for store in experiments(REFERENCE, "runs")]
