"""Threads on a machine that others use too."""

import logging
from pathlib import Path

import pytest
import torch

from bench.measure import provenance, threads
from bench.measure.threads import allowed, wanted


@pytest.mark.parametrize(
    ("default", "cores", "machine", "load", "found"),
    [
        (2, 2, 2, 0.0, 2),
        (2, 2, 2, 0.4, 2),
        (2, 2, 2, 1.0, 1),
        (2, 2, 2, 2.0, 1),
        (8, 2.5, 64, 0.0, 3),
        (8, 8, 64, 60.2, 4),
        (4, 8, 64, 3.0, 4),
        (4, 1, 64, 70.0, 1),
    ],
)
def test_threads_are_no_more_than_free_cores(default, cores, machine, load, found):
    assert wanted(default, cores, machine, load) == found


def test_the_strictest_quota_above_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(16)), raising=False)
    root, own = tmp_path / "cgroup", tmp_path / "own"
    inner = root / "slurm" / "job"
    inner.mkdir(parents=True)
    own.write_text("0::/slurm/job\n")
    assert allowed(root, own) == 16
    (root / "slurm" / "cpu.max").write_text("350000 100000\n")
    (inner / "cpu.max").write_text("max 100000\n")
    assert allowed(root, own) == 3.5
    (inner / "cpu.max").write_text("200000 100000\n")
    assert allowed(root, own) == 2
    assert allowed(root, tmp_path / "none") == 16


@pytest.mark.parametrize("told", ["", "3"])
def test_a_busy_machine_is_said_once_and_what_the_user_set_stays(told, monkeypatch, caplog):
    times = iter(provenance.CpuTimes(wall, 2.0 * wall, 0.0) for wall in (1.0, 2.0))
    monkeypatch.setattr(threads, "cpu_times", lambda: next(times))
    monkeypatch.setattr(threads, "allowed", lambda: 4.0)
    monkeypatch.setattr(threads.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(threads, "LOOK_S", 0.0)
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    before, set_to = torch.get_num_threads(), []
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    threads.choose.cache_clear()
    with caplog.at_level(logging.WARNING):
        threads.choose()
        threads.choose()
    threads.choose.cache_clear()
    monkeypatch.undo()
    assert torch.get_num_threads() == before
    assert set_to == ([] if told else [2])
    assert [record.message[:26] for record in caplog.records] == ([] if told else ["2 threads in place of 4: t"])
