"""Ctrl-C at any moment of the commands that read results: one sentence, a status, and no file that is half written."""

import random
import shutil
import signal
import time
from pathlib import Path

import forked
import pytest
from cells import execute

from specdec_trees.measure import stalls

CELL = ("pair=tiny", "dataset=mini", "limit=6", "decoding.max_new_tokens=6", "name=smoke")
COMMANDS = {
    "report": ["report", "smoke", "--results", "a", "--out", "out"],
    "site": ["report", "--results", "a", "--out", "out"],
    "status": ["status", "--results", "a"],
    "check": ["check", "a"],
    "compare": ["compare", "a/smoke", "a/smoke", "--out", "out"],
    "merge": ["merge", "a", "b", "--into", "out"],
    "engines": ["engines", "a", "--as", "aiperf", "--out", "out"],
    "pack": ["pack", "a"],
}


@pytest.fixture(scope="module")
def run():
    with forked.server() as ask:
        yield ask


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two folders of results, one of which has a file beside its rows."""
    root = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stalls, "REPEATS", 0)
        assert execute(root / "a", *CELL, "drafter=chain4", "case_study=true") == "ok"
        assert execute(root / "a", *CELL, "drafter=opt_tree", "drafter.n=4") == "ok"
        assert execute(root / "b", *CELL, "drafter=prompt_lookup") == "ok"
    return root


def visible(folder: Path) -> dict[str, bytes]:
    """Files by their place."""
    places = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in places.items() if not path.name.startswith(".")}


def temporaries(folder: Path) -> list[str]:
    """Hidden files that a command writes before it puts them into their place."""
    return [path.name for path in folder.rglob(".*.tmp")]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name == "site" else name for name in COMMANDS]
)
def test_it_ends_in_a_sentence_and_leaves_whole_files(name, run, results, tmp_path, long_form):
    command, dice = COMMANDS[name], random.Random(name)
    shutil.copytree(results, tmp_path / "whole")
    before, begin = visible(results), time.monotonic()
    ends, _ = run(command, tmp_path / "whole")
    longest, whole = time.monotonic() - begin, visible(tmp_path / "whole")
    assert ends in (0, 1, 3)
    stopped = 0
    for number in range(30 if long_form else 2):
        folder = tmp_path / str(number)
        shutil.copytree(results, folder)
        status, said = run(command, folder, dice.uniform(0, longest))
        if status == -signal.SIGINT:
            stopped += 1
            assert said.splitlines()[-1] == "stopped by Ctrl-C", said
        else:
            assert status == ends, said
        assert "Traceback" not in said
        assert "Exception ignored" not in said
        for place, content in visible(folder).items():
            assert content in (before.get(place), whole.get(place)), f"{place} is half written"
        assert not temporaries(folder)
        assert run(command, folder)[0] == ends
        assert visible(folder) == whole
    assert stopped or not long_form
