"""`python -m bench.reproduce` as a process: planned, run, resumed, reported."""

import os
import subprocess
import sys
from pathlib import Path

from cells import stamps

from bench import progress
from bench.store import Store

SHORT = ("pair=tiny", "limit=1", "decoding.max_new_tokens=4", "runtime.device=cpu", "runtime.progress=false")


def reproduce(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "bench.reproduce", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )


def test_two_artifacts_are_run_reported_and_not_run_again(tmp_path):
    names = ("opt_tree/fig7", "opt_tree/fig10")
    text = '{"id": "a", "turns": ["def f(x):", "def g(x):"], "reference": null, "category": null}\n'
    (tmp_path / "mt_bench.jsonl").write_text(text)
    first = reproduce(tmp_path, *names, *SHORT, f"data_dir={tmp_path}")
    assert first.returncode == 0, first.stderr + first.stdout
    assert "[1/2] opt_tree/fig7: missing: 0 of 1, 1 missing" in first.stdout
    results = tmp_path / "results"
    assert {progress.words(progress.read(results, name)) for name in names} == {"done: 1 of 1"}
    assert (results / "report" / "opt_tree" / "fig7.png").is_file()
    rows = {path: stamp for path, stamp in stamps(results).items() if path.endswith(".parquet")}
    again = reproduce(tmp_path, "opt_tree/fig7", *SHORT, f"data_dir={tmp_path}")
    assert again.returncode == 0, again.stderr
    assert "[1/1] opt_tree/fig7: done: 1 of 1" in again.stdout
    assert {path: stamp for path, stamp in stamps(results).items() if path.endswith(".parquet")} == rows


def test_a_cell_that_fails_fails_the_command_with_its_sentence(tmp_path):
    (tmp_path / "mt_bench.jsonl").write_text('{"id": "a", "turns": ["def f(x):"]}\n')
    found = reproduce(tmp_path, "opt_tree/fig7", *SHORT, f"data_dir={tmp_path}", "drafter.n=-3")
    assert found.returncode != 0
    assert Store(tmp_path / "results", "opt_tree/fig7").read("runs")["status"].tolist() == ["failed"]
    assert "opt_tree/fig7: failed: 0 of 1, 1 failed" in found.stderr


def test_unknown_names_get_the_nearest(tmp_path):
    found = reproduce(tmp_path, "opt_tree/tabel1", *SHORT)
    assert found.returncode != 0
    assert "opt_tree/table1" in found.stderr
    assert reproduce(tmp_path, "opt_tree/fig7", "pair=tinny").stderr.count("\n") < 4
