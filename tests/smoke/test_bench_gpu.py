"""`make bench-gpu` on the small planted pair and the CPU, so that it works the first time a GPU is there."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from cells import config
from composed import names

from specdec_trees.artifacts import frame, notes
from specdec_trees.configs.cells import pair_of, runtime_of
from specdec_trees.gpu import __main__ as gpu
from specdec_trees.gpu import cells, checks, summary
from specdec_trees.gpu.cells import METHODS, OutOfTimeError, limited
from specdec_trees.locations import CONF
from specdec_trees.measure import bandwidth, pairs
from specdec_trees.results.store import load

pytestmark = pytest.mark.long


TESTS = """
import time, pytest
def test_good(): pass
def test_bad(): assert False
def test_left_out(): pytest.skip("no reason")
"""
SHORT = ("--pair", "planted/small", "--no-tests", "--conversations", "1", "--new-tokens", "6", "--repeats", "1")


def finished(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        arguments, cwd=CONF.parent, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def run(out: Path, *more: str) -> dict[str, Any]:
    """The report of a run in this process; a method that fails is no error of the run."""
    gpu.main([*SHORT, "--out", str(out), *more])
    return json.loads((out / "gpu.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """`make bench-gpu`, in this environment in place of its own, which it would bring up to date first."""
    results = tmp_path_factory.mktemp("gpu")
    place = (f"BIN={Path(sys.executable).parent}", f"RESULTS={results}", f"PAIR={SHORT[1]}")
    return results / "gpu", finished("make", "-o", "setup", "bench-gpu", *place, f"ARGS={' '.join(SHORT[2:])}")


def test_every_part_is_in_the_json(done):
    out, process = done
    assert process.returncode == 0, process.stdout + process.stderr
    report = json.loads((out / "gpu.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert report["complete"] is True
    assert (report["errors"], report["left_out"]) == ([], [])
    assert report["pair"]["synthetic"] is True
    assert {"device_name", "torch_version", "driver_version", "git_revision"} <= set(report["device"])
    assert report["copy"]["bytes_per_s"] > 0
    assert set(report["forward_ms"]) == {"target", "draft"}
    assert report["seconds"]["total"] < 120
    base = report["autoregressive"]
    assert base["share_of_copy_bandwidth"] == pytest.approx(
        base["bytes_per_token"] * base["tokens_per_s"] / report["copy"]["bytes_per_s"]
    )
    found = {(row["drafter"], row["temperature"], row["how"]) for row in report["methods"]}
    methods = {(drafter, 1.0 if decoding == "t1" else 0.0, "") for drafter, decoding in METHODS}
    assert found == methods | {("opt_tree_n50", 0.0, "attention=tree_split")}
    for row in report["methods"]:
        assert (row["status"], row["error"]) == ("ok", None)
        assert row["mal"]["value"] >= 1
        assert row["speedup"]["value"] > 0
        assert row["identical"] == (1 if row["temperature"] == 0 else None)
        assert row["step_ms"] == pytest.approx(sum(row[f"{phase}_ms"] for phase in summary.metrics.PHASES))


def test_rows_are_the_usual_parquet_in_the_same_folder(done):
    out, process = done
    runs = pd.read_parquet(out / "gpu" / "runs")
    assert len(runs) == len(METHODS) + 1
    assert set(runs["pair"]) == {"planted/small"}
    assert len(pd.read_parquet(out / "gpu" / "latency")) > 0
    table = (out / "gpu.md").read_text(encoding="utf-8")
    assert table in process.stdout
    assert "planted/small (synthetic" in table
    assert "planted/small (synthetic, stands in for llama2_7b + jf68m)" in notes.setting(frame.load(load(out, "gpu")))
    assert {path.name for path in out.iterdir()} == {"gpu", "calibration", "gpu.json", "gpu.md"}


def test_make_runs_it_on_the_7b_pair_unless_told_otherwise():
    default, small = (finished("make", "-n", "bench-gpu", *more) for more in ((), ("PAIR=planted/small",)))
    assert "-m specdec_trees.gpu" in default.stdout
    assert "--pair" not in default.stdout
    assert "--pair planted/small" in small.stdout
    assert gpu._parser().parse_args([]).pair == "planted/llama2_7b_jf68m"
    assert {drafter for drafter, _ in METHODS} <= {*names("drafter")}


def test_a_method_that_fails_is_a_row_with_its_error(tmp_path, monkeypatch):
    methods = (("autoregressive", "greedy"), ("opt_tree", "no_such_decoding"), ("chain4", "greedy"))
    monkeypatch.setattr(gpu, "METHODS", methods)
    monkeypatch.setattr(gpu, "VARIANTS", ())
    report = run(tmp_path)
    assert [row["drafter"] for row in report["methods"]] == ["autoregressive", "chain4"]
    assert [error["part"] for error in report["errors"]] == ["opt_tree, no_such_decoding"]
    assert report["complete"] is False
    monkeypatch.setattr(gpu, "METHODS", methods[2:])
    monkeypatch.setattr("specdec_trees.measure.runner.Measurement", None)
    report = run(tmp_path)
    assert [row["status"] for row in report["methods"]] == ["failed"]
    assert "NoneType" in report["methods"][0]["error"]
    assert "failed" in (tmp_path / "gpu.md").read_text(encoding="utf-8")


def test_without_a_pair_there_is_a_report_all_the_same(tmp_path, monkeypatch):
    def no_room(*_: object) -> None:
        raise MemoryError("none")

    monkeypatch.setattr(pairs, "loaded", no_room)
    report = run(tmp_path)
    assert {error["part"] for error in report["errors"]} == {"pair"}
    assert {left["reason"] for left in report["left_out"]} == {"there is no pair"}
    assert len(report["left_out"]) == len(METHODS) + 1


def test_a_planted_head_goes_through_every_part(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "VARIANTS", ())
    monkeypatch.setattr(gpu, "METHODS", (("opt_tree", "greedy"), ("sequoia", "greedy"), ("sequoia", "t1")))
    report = run(tmp_path, "--pair", "planted/small_eagle")
    assert report["complete"] is True, report["errors"]
    assert [row["identical"] for row in report["methods"]] == [1, 1, None]
    assert set(report["forward_ms"]) == {"target", "draft"}


@pytest.mark.parametrize("minutes", ["0.08", "0"])
def test_when_time_is_up_the_rest_is_named(minutes, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "RESERVE_S", 0.0)
    report = run(tmp_path, "--minutes", minutes)
    assert report["complete"] is False
    assert report["left_out"] or report["errors"]
    assert report["seconds"]["total"] < 30


def test_a_part_is_stopped_where_it_stands():
    start = time.monotonic()
    with pytest.raises(OutOfTimeError), limited(0.2):
        time.sleep(20)
    assert time.monotonic() - start < 10
    with pytest.raises(OutOfTimeError), limited(0.0):
        pytest.fail("there was no time")
    with limited(5.0):
        pass


def test_tests_are_counted_and_stopped(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    found = checks.run_tests(120, ["test_some.py"], tmp_path)
    assert (found["passed"], found["failed"], found["skipped"]) == (1, 1, 1)
    assert found["failing"] == ["test_some::test_bad"]
    assert (found["exit_status"], found["stopped_at_limit"]) == (1, False)
    (tmp_path / "test_slow.py").write_text(TESTS + "def test_slow(): time.sleep(600)\n")
    found = checks.run_tests(12, ["test_slow.py"], tmp_path)
    assert found["stopped_at_limit"] is True
    assert found["exit_status"] != 0
    assert found["seconds"] < 60


def test_bytes_of_a_token_are_those_of_weights_and_cache():
    cfg = config("pair=planted/small")
    pair = pairs.loaded(pair_of(cfg), runtime_of(cfg))
    hidden, inner, layers, vocab = 128, 344, 4, 2048
    layer = hidden * hidden * (1 + 1 / 2 + 1 / 2 + 1) + 3 * hidden * inner + 2 * hidden
    weights = 4 * (layers * layer + vocab * hidden + hidden + hidden)
    assert bandwidth.bytes_per_token(pair, 0) == weights
    assert bandwidth.bytes_per_token(pair, 10) - weights == 10 * layers * 2 * 64 * 4


def test_of_what_a_cache_may_hold_no_limit_is_known(monkeypatch):
    cfg = config("pair=planted/small")
    pair = pairs.loaded(pair_of(cfg), runtime_of(cfg))
    monkeypatch.setattr(bandwidth, "read_bytes_per_s", lambda device: 1e9)
    assert bandwidth.limit_tokens_per_s(pair, 10) is None
    monkeypatch.setattr(bandwidth, "CACHED_BYTES", 1e6)
    assert bandwidth.limit_tokens_per_s(pair, 10) == 1e9 / bandwidth.bytes_per_token(pair, 10)


def test_copies_are_timed(monkeypatch):
    monkeypatch.setitem(bandwidth.BYTES, "cpu", 1 << 20)
    assert bandwidth.copy_bytes_per_s(torch.device("cpu"), repeats=3) > 1e6
    assert bandwidth.read_bytes_per_s(torch.device("cpu"), repeats=3) > 1e6


def test_a_config_of_the_command_measures_what_nothing_was_calibrated_on(tmp_path):
    request = cells.Request("planted/small", tmp_path, 2, 8, 1)
    cfg = cells.config(request, "drafter=sequoia")
    assert cfg.dataset.part == "evaluation"
    assert cfg.results_dir == str(tmp_path)
