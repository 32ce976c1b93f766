"""Ctrl-C ends any command in one sentence, and errors are told as ever."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cells import _hear_ctrl_c

import specdec_trees


def test_a_command_that_is_stopped_says_so():
    command = [sys.executable, "-u", "-m", "specdec_trees.speed.search"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, preexec_fn=_hear_ctrl_c, **streams)
    assert process.stdout.readline().startswith("search")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert said == "stopped by Ctrl-C\n"
    assert process.returncode == -signal.SIGINT, "as shells expect it of what Ctrl-C ended"


def test_an_error_that_ctrl_c_led_to_is_no_traceback(capsys):
    error = AssertionError()
    error.__context__ = KeyboardInterrupt()
    specdec_trees._stopped(AssertionError, error, None)
    assert capsys.readouterr().err == "stopped by Ctrl-C\n"


def test_other_errors_keep_their_traceback(capsys):
    with pytest.raises(ValueError, match="nothing") as raised:
        raise ValueError("nothing to do with it")
    specdec_trees._stopped(raised.type, raised.value, raised.tb)
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.endswith("ValueError: nothing to do with it\n")


def test_who_imports_the_package_keeps_their_own_hook():
    code = "import sys, specdec_trees; sys.exit(sys.excepthook is not sys.__excepthook__)"
    subprocess.run([sys.executable, "-c", code], check=True)


UNREAD = (
    "status --results {}",
    "compare fe697d8c484f 43d7e2fedb55 --results {}",
    "plan --help",
    "report smoke --results {}",
)


@pytest.mark.parametrize("task", UNREAD)
def test_a_reader_that_stops_ends_a_command_in_silence(task, tmp_path):
    """As of `| head`."""
    read, write = os.pipe()
    os.close(read)
    command = f"specdec_trees.{task}".format(Path("results/reference").absolute()).split()
    process = subprocess.run(
        [sys.executable, "-m", *command], stdout=write, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False
    )
    os.close(write)
    assert process.stderr == ""
