"""One file of rows: what comes back is what was written, and anything else is skipped with one sentence."""

import shutil
import warnings

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filled import row

from specdec_trees.results.parquet import file_name, frame, read_table, write_rows
from specdec_trees.results.rows import TABLES, PromptRow, StepRow, schema


def write(folder, row_type, run_id, *rows):
    path = folder / file_name(run_id)
    write_rows(path, row_type, [row(row_type, run_id=run_id, **values) for values in rows or [{}]])
    return path


def read_rows(paths, row_type):
    return frame([read_table(path, row_type) for path in paths], row_type)


@pytest.mark.parametrize("row_type", TABLES.values(), ids=TABLES)
def test_rows_come_back_as_they_were_written(tmp_path, row_type):
    written, path = [row(row_type, run_id="a1")] * 2, tmp_path / file_name("a1")
    write_rows(path, row_type, written)
    found = read_rows([path], row_type)
    assert list(found.columns) == schema(row_type).names
    assert len(found) == 2
    for column in found:
        for read, value in zip(found[column], [getattr(each, column) for each in written], strict=True):
            assert pd.isna(read) if value is None else (list(read) if isinstance(value, list) else read) == value


def test_types_survive_none_and_absence(tmp_path):
    paths = [
        write(tmp_path, PromptRow, "a1", {}, {"first_divergence": 7}),
        write(tmp_path, PromptRow, "b2", {"identical": False}),
    ]
    found, empty = read_rows(paths, PromptRow), read_rows([], PromptRow)
    for rows in (found, empty):
        dtypes = rows.dtypes.astype(str)
        wanted = {"turn": "int64", "decode_s": "float64", "identical": "boolean", "first_divergence": "Int64"}
        assert {name: dtypes[name] for name in wanted} == wanted
    assert empty.empty
    assert found["first_divergence"].tolist() == [pd.NA, 7, pd.NA]
    assert found["identical"].tolist() == [pd.NA, pd.NA, False]
    assert found["run_id"].tolist() == ["a1", "a1", "b2"]


def test_a_column_that_was_never_empty_once_is_read_beside_one_that_is(tmp_path):
    """E(A) had a number in every row before there were drafters without probabilities; all-absent keeps its type."""
    old = write(tmp_path, StepRow, "a1", {"expected_acceptance": 2.5})
    fields = [f.with_nullable(False) if f.name == "expected_acceptance" else f for f in schema(StepRow)]
    pq.write_table(pq.read_table(old, partitioning=None).cast(pa.schema(fields)), old)
    new = write(tmp_path, StepRow, "b2", {"expected_acceptance": None})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, absent = read_rows([old, new], StepRow), read_rows([new], StepRow)
    assert found["expected_acceptance"].tolist() == [2.5, pytest.approx(float("nan"), nan_ok=True)]
    assert str(absent["expected_acceptance"].dtype) == "float64"


def test_no_rows_are_an_empty_table(tmp_path):
    write_rows(tmp_path / file_name("a1"), StepRow, [])
    assert read_rows([tmp_path / file_name("a1")], StepRow).empty


def test_a_row_that_breaks_the_contract_leaves_the_old_file(tmp_path):
    path = write(tmp_path, PromptRow, "a1", {"status": "ok"})
    with pytest.raises(pa.ArrowInvalid, match="status"):
        write(tmp_path, PromptRow, "a1", {"status": None})
    assert read_rows([path], PromptRow)["status"].tolist() == ["ok"]
    assert list(tmp_path.iterdir()) == [path]


def _half(path):
    path.write_bytes(path.read_bytes()[:200])


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[40] ^= 0xFF
    path.write_bytes(content)


def _foreign(path):
    pq.write_table(pa.table({"run_id": ["b2"], "colour": ["red"]}), path)


def _older(path):
    table = pq.ParquetFile(path).read()
    pq.write_table(table.drop_columns(["judge_s"]), path)


def _copied(path):
    shutil.copy(path.with_name(file_name("a1")), path)


def _folder(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    "damage", [_half, _flipped, _foreign, _older, _copied, _folder, lambda path: path.write_text("")]
)
def test_a_file_that_is_not_ours_is_skipped_with_one_sentence(tmp_path, damage):
    paths = [write(tmp_path, StepRow, name) for name in ("a1", "b2", "c3")]
    damage(paths[1])
    with pytest.warns(UserWarning, match="run_id=b2.parquet") as caught:
        found = read_rows(paths, StepRow)
    assert found["run_id"].tolist() == ["a1", "c3"]
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)


def test_bytes_gone_bad_are_noticed_or_harmless(tmp_path):
    path = write(tmp_path, StepRow, "a1", *({"step": step, "draft_s": step / 7} for step in range(50)))
    content, whole = path.read_bytes(), read_rows([path], StepRow)
    for position in range(4, len(content), 61):
        path.write_bytes(content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = read_rows([path], StepRow)
        assert found.empty if caught else found.equals(whole)
