"""Threads on a machine that others use too."""

import logging
import math
import os
from pathlib import Path

import pytest

from specdec_trees.measure import threads
from specdec_trees.measure.threads import busy_s, quota, wanted


@pytest.mark.parametrize(
    ("default", "cores", "allowed", "load", "found"),
    [
        (2, 2, math.inf, 0.0, 2),
        (2, 2, math.inf, 0.4, 2),
        (2, 2, math.inf, 1.0, 1),
        (2, 2, math.inf, 2.0, 1),
        (8, 64, 2.5, 0.0, 2),
        (8, 64, 0.5, 0.0, 1),
        (8, 64, math.inf, 60.2, 4),
        (4, 64, math.inf, 3.0, 4),
        (1, 64, math.inf, 70.0, 1),
    ],
)
def test_threads_are_no_more_than_free_cores(default, cores, allowed, load, found):
    assert wanted(default, cores, allowed, load) == found


def test_the_strictest_quota_above_counts(tmp_path: Path):
    root, own = tmp_path / "cgroup", tmp_path / "own"
    inner, old = root / "slurm" / "job", root / "cpu" / "docker"
    inner.mkdir(parents=True)
    old.mkdir(parents=True)
    own.write_text("4:memory:/docker\n3:cpu,cpuacct:/docker\n0::/slurm/job\n")
    assert quota(root, own) == math.inf
    (root / "slurm" / "cpu.max").write_text("350000 100000\n")
    (inner / "cpu.max").write_text("max 100000\n")
    assert quota(root, own) == 3.5
    (inner / "cpu.max").write_text("200000 100000\n")
    assert quota(root, own) == 2
    for part, value in (("quota", -1), ("period", 100_000)):
        (old / f"cpu.cfs_{part}_us").write_text(f"{value}\n")
    assert quota(root, own) == 2
    (old / "cpu.cfs_quota_us").write_text("150000\n")
    assert quota(root, own) == 1.5
    assert quota(root, tmp_path / "none") == math.inf


def test_load_is_of_the_cores_that_the_process_may_use(tmp_path: Path):
    stat, tick = tmp_path / "stat", os.sysconf("SC_CLK_TCK")
    stat.write_text(
        "cpu  9 9 9 9 9 9 9 9 0 0\n" + "".join(f"cpu{core} {core} 50 2 70 80 1 1 1 0 0\n" for core in range(12))
    )
    assert busy_s({1, 11}, stat) == pytest.approx((1 + 11 + 2 * 5) / tick)
    assert busy_s({99}, stat) is None
    assert busy_s({0}, tmp_path / "none") is None


@pytest.mark.parametrize(("told", "load", "found"), [("", 2.2, 2), ("", None, 4), ("3", 2.2, 4)])
def test_a_busy_machine_is_said_once_and_what_the_user_set_stays(told, load, found, monkeypatch, caplog):
    monkeypatch.setattr(threads, "other_load", lambda _: load)
    monkeypatch.setattr(threads, "quota", lambda: math.inf)
    monkeypatch.setattr(threads, "own_cores", lambda: {0, 1, 2, 3})
    monkeypatch.setattr(threads, "DEFAULT", 4)
    monkeypatch.setenv("OMP_NUM_THREADS", told)
    threads.choose.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [threads.choose(), threads.choose()] == [found, found]
    threads.choose.cache_clear()
    assert [record.message[:25] for record in caplog.records] == ["2 threads in place of 4: "] * (found < 4)


def test_the_least_of_several_looks_counts(monkeypatch):
    worked = iter((0.0, 2.0, 2.0, 2.5, 2.5, 4.5, 4.5, 6.5))
    clock = iter(range(8))
    monkeypatch.setattr(threads, "busy_s", lambda _: next(worked))
    monkeypatch.setattr(threads.time, "sleep", lambda _: None)
    monkeypatch.setattr(threads.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(threads.os, "times", lambda: (0.0, 0.0, 0.0, 0.0, 0.0))
    assert threads.other_load({0, 1}) == 0.5
