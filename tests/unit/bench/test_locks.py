"""A file system without flock: a sentence, and nothing is run."""

import errno
import fcntl
import warnings

import pytest
from cells import command, config, execute, stamps

from specdec_trees.configs.cells import cell_of
from specdec_trees.measure.decoding import Decoding
from specdec_trees.results import progress
from specdec_trees.results.locks import held, lock
from specdec_trees.results.store import Store, StoreError, load

CELL = ("pair=tiny", "dataset=mini", "drafter=chain4", "limit=1", "decoding.max_new_tokens=3")
CODES = [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS]


@pytest.fixture
def refused(monkeypatch, request):
    """Locks are refused as file systems do it."""

    def refuse(*_: object) -> None:
        raise OSError(request.param, "flock")

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("refused", CODES, indirect=True)
def test_no_cell_is_run_and_a_sentence_says_why(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(Decoding, "decode", lambda *_, **__: pytest.fail("a race"))
    with pytest.raises(
        StoreError, match=r"has no locks, so that two jobs could run one cell; SPECDEC_LOCKS=off"
    ) as said:
        execute(tmp_path, *CELL)
    assert "set results_dir to another folder" in str(said.value)
    assert not stamps(tmp_path)


@pytest.mark.parametrize("refused", CODES[:1], indirect=True)
def test_a_sweep_is_refused_cell_by_cell(refused, tmp_path, caplog):
    assert command(tmp_path, "-m", *CELL, "seed=0,1", "runtime.progress=false") == 1
    assert not stamps(tmp_path / "results")


@pytest.mark.parametrize("refused", CODES, indirect=True)
def test_who_runs_alone_may_do_without(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_LOCKS", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert execute(tmp_path, *CELL) == "ok"
    assert len(load(tmp_path, "default").runs) == 1


@pytest.mark.parametrize("refused", CODES[:1], indirect=True)
def test_what_runs_is_not_seen(refused, tmp_path):
    (tmp_path / ".lock-a1").touch()
    with pytest.warns(UserWarning, match="what runs at this moment is not seen"):
        assert held(tmp_path) == {}
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / ".lock-a1").touch()
    with pytest.warns(UserWarning, match="not seen"):
        assert progress.read(tmp_path, "default").running == 0


def test_a_cell_that_another_process_runs_is_counted_at_the_end(tmp_path, capsys):
    name = cell_of(config(*CELL)).run_id
    (tmp_path / "results" / "default").mkdir(parents=True)
    with lock(tmp_path / "results" / "default", name):
        assert command(tmp_path, "-m", *CELL, "seed=0,1", "runtime.progress=false", "runtime.device=cpu") is None
    said = "cells left out, since other processes run them: 1; the same command says later whether they ended"
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert load(tmp_path / "results", "default").runs["seed"].tolist() == [1]


def test_other_errors_are_told_as_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(StoreError, match="Input/output error"), Store(tmp_path, "e").lock("a1"):
        pass
