"""`python -m specdec_trees.reproduce`: planned, run, resumed, reported, and stopped as a process."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from cells import _hear_ctrl_c, stamps

from specdec_trees import reproduce
from specdec_trees.artifacts.tables import ABSENT
from specdec_trees.measure.preemption import Preempted
from specdec_trees.papers.registry import ARTIFACTS
from specdec_trees.results import progress
from specdec_trees.results.locks import held
from specdec_trees.results.progress import SWEEP
from specdec_trees.results.store import Store

SHORT = ("pair=tiny", "limit=1", "decoding.max_new_tokens=4", "runtime.device=cpu", "runtime.progress=false")


TEXT = '{"id": "a", "turns": ["def f(x):", "def g(x):"], "reference": null, "category": null}\n'
ROOT = Path(__file__).parents[2]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command in a process group of its own, as a terminal does it."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "specdec_trees.reproduce", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=_hear_ctrl_c, process_group=0, **streams)


def test_a_sweep_of_replays_leaves_out_what_was_not_recorded(tmp_path, monkeypatch, capsys):
    """Case studies, and rules that compare p with q on trees that follow their draws or that a head drafts."""
    (tmp_path / "mt_bench.jsonl").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    mixed = reproduce.planned("dyspec/table1", ["pair=tiny", "runtime.replay=true"]).cells
    configs = [cell["config"] for cell in mixed]
    sampled = {config["drafter"]["_target_"] for config in configs if config["decoding"]["temperature"] > 0}
    assert {name.rpartition(".")[2] for name in sampled} == {"StaticTree", "Sequoia"}
    assert {"DySpec", "DySpecHeap"} <= {config["drafter"]["_target_"].rpartition(".")[2] for config in configs}
    for pair, rules in (("tiny", {"TargetSample", "Eagle1"}), ("tiny_eagle", {"TargetSample"})):
        cells = reproduce.planned("opt_tree/table3", [f"pair={pair}", "runtime.replay=true"]).cells
        assert {cell["config"]["verifier"]["_target_"].rpartition(".")[2] for cell in cells} == rules
    names = ("opt_tree/fig5", "opt_tree/fig10")
    assert reproduce.main([*names, *SHORT, f"data_dir={tmp_path}", "runtime.replay=true"]) == 0
    assert {path.parent.name for path in (tmp_path / "results").glob("*/*/plan.json")} == {"fig5"}
    assert Store(tmp_path / "results", "opt_tree/fig5").read("runs")["recording"].notna().all()


def test_help_says_what_it_takes(capsys):
    assert reproduce.main(["--help"]) == 0
    assert "opt_tree/table1" in capsys.readouterr().out


def test_two_artifacts_are_run_reported_and_not_run_again(tmp_path, monkeypatch, capsys):
    names = ("opt_tree/fig7", "opt_tree/fig10")
    (tmp_path / "mt_bench.jsonl").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    assert reproduce.main([*names, *SHORT, f"data_dir={tmp_path}"]) == 0
    assert "[1/2] opt_tree/fig7: missing: 0 of 1, 1 missing" in capsys.readouterr().out
    results = tmp_path / "results"
    assert {progress.words(progress.read(results, name)) for name in names} == {"done: 1 of 1"}
    assert (results / "report" / "opt_tree" / "fig7.png").is_file()
    rows = {path: stamp for path, stamp in stamps(results).items() if path.endswith(".parquet")}
    assert reproduce.main(["opt_tree/fig7", *SHORT, f"data_dir={tmp_path}"]) == 0
    assert "[1/1] opt_tree/fig7: done: 1 of 1" in capsys.readouterr().out
    assert {path: stamp for path, stamp in stamps(results).items() if path.endswith(".parquet")} == rows
    assert_what_is_not_done_is_named(results, monkeypatch, capsys)


def test_an_attempt_that_fails_leaves_the_report_and_what_was_measured(tmp_path, monkeypatch):
    for folder, text in (("well", TEXT), ("broken", "no json")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mt_bench.jsonl").write_text(text)
    monkeypatch.chdir(tmp_path)
    drawn = tmp_path / "results" / "report" / "opt_tree" / "fig7.md"
    assert reproduce.main(["opt_tree/fig7", *SHORT, "data_dir=well"]) == 0
    before = drawn.read_text()
    assert reproduce.main(["opt_tree/fig7", *SHORT, "data_dir=broken"]) == 1
    assert drawn.read_text() == before
    state = progress.read(tmp_path / "results", "opt_tree/fig7")
    assert (state.state, state.done, state.failed, state.others) == ("failed", 0, 1, 1)


@pytest.mark.long
def test_what_is_run_along_is_in_the_table_of_a_pair(tmp_path, monkeypatch):
    """Medusa's heads are a pair of their own, and GSD's Table 4 sets them beside the draft model's GSD."""
    for name in ("gsm8k", "xsum"):
        (tmp_path / f"{name}.jsonl").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(["gsd/table4", *SHORT, f"data_dir={tmp_path}"]) == 0
    table = pd.read_csv(tmp_path / "results" / "report" / "gsd" / "table4.csv").set_index("label")
    for method in ("Medusa", "GSD"):
        assert (table.loc[[method], "mean_speedup"] != ABSENT).any(), method


def assert_what_is_not_done_is_named(results: Path, monkeypatch, capsys) -> None:
    """As after a sweep in which a cell was busy, unless a part of it alone was asked for."""
    plan = progress.read_plan(results / "opt_tree/fig7")
    other = {**plan.cells[0], "config": {**plan.cells[0]["config"], "seed": 5}}
    replace(plan, cells=(*plan.cells, other)).write(results / "opt_tree/fig7")
    plans = {name: progress.read_plan(results / name) for name in ("opt_tree/fig7", "opt_tree/fig10")}
    monkeypatch.setattr(reproduce, "reproduce", lambda *given: (plans, []))
    command = ["opt_tree/fig7", "opt_tree/fig10", "pair=tiny", f"results_dir={results}"]
    assert reproduce.main(command) == 1
    assert capsys.readouterr().err == "opt_tree/fig7: partly: 1 of 2, 1 missing\n"
    assert reproduce.main([*command, "shard=0/2"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.long
def test_ctrl_c_waits_for_the_sweep_and_says_so_in_a_line(tmp_path):
    (tmp_path / "mt_bench.jsonl").write_text(TEXT)
    process = start(tmp_path, "opt_tree/fig7", *SHORT, f"data_dir={tmp_path}")
    folder, deadline = tmp_path / "results" / "opt_tree" / "fig7", time.monotonic() + 300
    while not held(folder).keys() - {SWEEP}:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert process.returncode == 130
    (said,) = (line for line in err.splitlines() if "stopped" in line)
    assert said.endswith("the same command goes on from there"), "the sweep says it, once"
    assert "specdec_trees/reproduce.py" not in err, "no traceback of its own"
    assert held(folder) == {}
    assert progress.words(progress.read(tmp_path / "results", "opt_tree/fig7")) == "missing: 0 of 1, 1 missing"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("limit=0", "from 1 on"),
        ("decoding.temperature=-1", "positive"),
        ("limit=two", "from 1 on"),
        ("limit=1.5", "from 1 on"),
        ("limit=true", "from 1 on"),
        ("limit=1,2", "from 1 on"),
        ("data_dir=nowhere", "data_dir=nowhere: there is no such folder"),
        ("experiment=opt_tree/fig8", "names of artifacts"),
        ("name=mine", "names of artifacts"),
        ("results_dir=a_file", "cannot be written to a_file"),
    ],
)
def test_what_cannot_hold_is_refused_before_planning(override, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "planned", lambda *given: pytest.fail("it planned"))
    (tmp_path / "a_file").touch()
    with pytest.raises(SystemExit, match=sentence):
        reproduce.main(["opt_tree/fig7", "pair=tiny", override])
    assert list(tmp_path.iterdir()) == [tmp_path / "a_file"]


def test_what_says_nothing_is_allowed():
    reproduce.check_overrides(["limit=null", "data_dir=null", "data_dir='.'", "pair=papers", "drafter.n=3"])


@pytest.mark.parametrize(("status", "said"), [(130, ""), (-signal.SIGINT, ""), (1, "stopped; the same command")])
def test_ctrl_c_is_told_once(status, said, tmp_path, monkeypatch, capsys):
    """By the sweep, which Ctrl-C reaches as well; by the command itself where the sweep could not."""

    class Sweep:
        waited = 0

        def __init__(self, command: object) -> None: ...

        def wait(self, patience_s: float | None = None) -> int:
            self.waited += 1
            if self.waited == 1:
                raise KeyboardInterrupt
            return status

        def kill(self) -> None: ...

    monkeypatch.setattr(subprocess, "Popen", Sweep)
    monkeypatch.setattr(reproduce, "_swept", lambda *given: [str(reproduce._run(["sweep"]))])
    with pytest.raises(SystemExit) as stop:
        sys.exit(reproduce.main(["smoke", f"results_dir={tmp_path}"]))
    assert stop.value.code == 130
    assert bool(said) == bool(err := capsys.readouterr().err)
    assert err.startswith(said)


@pytest.mark.long
def test_a_cell_that_fails_fails_the_command_with_its_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "mt_bench.jsonl").write_text('{"id": "a", "turns": ["def f(x):"]}\n')
    monkeypatch.chdir(tmp_path)
    assert reproduce.main(["opt_tree/fig7", *SHORT, f"data_dir={tmp_path}", "drafter.n=-3"]) != 0
    assert Store(tmp_path / "results", "opt_tree/fig7").read("runs")["status"].tolist() == ["failed"]
    assert "opt_tree/fig7: failed: 0 of 1, 1 failed" in capsys.readouterr().err


def test_a_papers_name_stands_for_its_artifacts():
    found = reproduce._artifacts(["gsd", "smoke"])
    assert {name.partition("/")[0] for name in found} == {"gsd", "smoke"}
    assert len(found) == len(list((ROOT / "conf" / "experiment" / "gsd").glob("*.yaml"))) + 1
    assert reproduce._artifacts([]) == list(ARTIFACTS)
    assert not reproduce._artifacts(["gs"])


def test_unknown_names_get_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong, nearest in (
        (("opt_tree/tabel1", *SHORT), "opt_tree/table1"),
        (("opt_tree/fig7", "pair=tinny"), '"tiny"'),
    ):
        with pytest.raises(SystemExit, match=nearest) as stop:
            reproduce.main(wrong)
        assert "\n" not in str(stop.value.code)


def test_sigterm_is_passed_on_and_waited_for(tmp_path):
    """A sweep finishes the prompt at hand before the command that started it ends."""
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    child = (
        "import pathlib, signal, sys, time\n"
        f"def end(*_): time.sleep(0.3); pathlib.Path({str(ended)!r}).touch(); sys.exit(143)\n"
        f"signal.signal(signal.SIGTERM, end); pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    )

    def ask() -> None:
        while not begun.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask).start()
    with pytest.raises(Preempted):
        reproduce._run([sys.executable, "-c", child])
    assert ended.exists()
