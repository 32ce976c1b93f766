"""The command `specdec`: its tasks, what it refuses, and the words that it completes."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from specdec_trees import cli, locations
from specdec_trees.configs import stand_ins

HELD = {"torch", "transformers", "pandas", "hydra"}
"""What takes long to import."""
CHECKOUT = locations.PACKAGE.parent


@pytest.mark.parametrize("task", cli.TASKS)
def test_a_task_becomes_its_module_with_the_arguments(task, monkeypatch):
    became = []
    monkeypatch.setattr(os, "execv", lambda program, command: became.append((program, command)))
    monkeypatch.setattr(sys, "argv", ["specdec", task, "a=1", "--help"])
    cli.main()
    ((program, command),) = became
    assert program == command[0] == sys.executable
    assert command[1] == "-m"
    assert command[-2:] == ["a=1", "--help"]
    found = find_spec(command[2])
    assert found.submodule_search_locations is None or find_spec(f"{command[2]}.__main__")


@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["--help"], 0), (["--version"], 0), (["plna"], 2)])
def test_what_is_no_task_needs_no_large_library(arguments, status):
    code = (
        f"import sys; sys.argv = ['specdec', *{arguments}]\ntry: import specdec_trees.cli; specdec_trees.cli.main()\n"
    )
    code += f"finally: print(sorted(sys.modules.keys() & {HELD}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stdout.endswith("[]\n")
    assert done.stderr.count("\n") == bool(status)


@pytest.fixture
def beside(tmp_path, monkeypatch) -> Path:
    """A working directory with a variant and two pairs, one of them under a name of the package's."""
    for name, path in (("mine", "conf/pair/mine.yaml"), ("theirs", "conf/pair/llama2_7b_chat_jf68m.yaml")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"name: {name}\ntarget: {{id: me/{name}}}\n")
    (tmp_path / "conf/variants.yaml").write_text("drafter: {opt_tree: {opt_tree_n7: {n: 7}}}\n")
    monkeypatch.chdir(tmp_path)
    stand_ins._own.cache_clear()
    yield tmp_path
    stand_ins._own.cache_clear()


def completed(line: str) -> list[str]:
    """What the shell is given for the word at the end of a line, with the cursor there."""
    word = line.rpartition(" ")[2].rpartition("=")[2]
    command = [sys.executable, "-m", "specdec_trees.completion", "specdec", word, "before"]
    environment = os.environ | {"COMP_LINE": line, "COMP_POINT": str(len(line)), "PYTHONPATH": str(CHECKOUT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_words_are_completed_up_to_the_cursor(beside):
    assert completed("specdec re") == ["record ", "report ", "reproduce "]
    assert completed("specdec run pair=mi") == ["mine"]
    assert completed("specdec run pair=mine drafter=opt_tree_n") == ["opt_tree_n50", "opt_tree_n60", "opt_tree_n7"]
    assert completed("specdec reproduce opt_tree/table") == [f"opt_tree/table{number} " for number in (1, 2, 3)]
    assert completed("specdec run -m decoding.temp") == ["decoding.temperature="]
    assert completed("specdec status --res") == []


def test_own_yamls_hide_those_of_the_package_but_make_no_model_the_papers(beside):
    packaged = locations.CONF / "pair/llama2_7b_chat_jf68m.yaml"
    found = locations.yamls("pair")
    assert found["mine"] == beside / "conf/pair/mine.yaml"
    assert found["llama2_7b_chat_jf68m"] == beside / "conf/pair/llama2_7b_chat_jf68m.yaml"
    assert found["tiny"] == locations.CONF / "pair/tiny.yaml"
    assert locations.yamls("pair", own=False)["llama2_7b_chat_jf68m"] == packaged
    theirs = {"name": "llama2_7b_chat_jf68m", "target": {"id": "me/theirs"}, "published": {"target": "llama2_7b"}}
    assert stand_ins.named(theirs)["published"]["stand_in"]


def test_other_programs_of_hydra_keep_their_search_path(beside):
    from hydra._internal.utils import create_config_search_path

    def places(main: str) -> list[str]:
        return [element.path for element in create_config_search_path(main).get_path()]

    own, ours = f"file://{beside / 'conf'}", str(locations.CONF)
    assert places(ours)[places(ours).index(ours) - 1] == own
    assert own not in places(str(beside / "other"))


def test_in_a_checkout_the_older_name_runs_the_same():
    command = [sys.executable, "-m", "bench.status", "--help"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: ")
