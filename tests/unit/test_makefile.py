"""The Makefile: what its targets run, what they take, and that a value is text, whatever is in it."""

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
OPTIONS = re.findall(r"^OPTIONS := (.+)", MAKEFILE, re.MULTILINE)[0].split()


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-n", "--no-print-directory", "-o", "setup", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def made(*arguments: str) -> str:
    done = make(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def words(*arguments: str) -> str:
    """The commands that would be run, as the shell reads them."""
    return " ".join(shlex.split(made(*arguments).replace("\\\n", " ")))


def test_smoke_takes_a_pair_and_lengths():
    sweep, report = made("smoke", "PAIR=tiny_eagle", "LIMIT=2", "MAX_NEW_TOKENS=9").splitlines()[-2:]
    assert {"pair=tiny_eagle", "limit=2", "decoding.max_new_tokens=9"} <= {*shlex.split(sweep)}
    assert shlex.split(report)[-2:] == ["--pair", "tiny_eagle"]
    assert "max_new_tokens" not in made("smoke"), "as the dataset has it"


def test_lossless_takes_a_length():
    assert "--new 9" in words("lossless", "MAX_NEW_TOKENS=9")


def test_a_report_is_of_all_pairs_unless_one_is_given():
    assert "--pair" not in made("report", "TABLE=default")
    assert "--pair tiny" in words("report", "TABLE=default", "PAIR=tiny")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("smoke", "DATA_DIR=folder"), "make smoke does not take DATA_DIR; it takes ARGS LIMIT MAX_NEW_TOKENS PAIR"),
        (("plan", "KILLS=3"), "make plan does not take KILLS; it takes ARGS DATA_DIR LIMIT"),
        (("bench-c4", "TABLE=opt_tree/table1"), "make bench-c4 does not take TABLE; it takes ARGS DATA_DIR LIMIT"),
        (("report", "PAIR=tiny", "LIMIT=2"), "make report does not take LIMIT; it takes PAIR RESULTS TABLE"),
        (("bench-overhead", "PAIR=tiny"), "make bench-overhead does not take PAIR; it takes ARGS"),
        (("lint", "PAIR=tiny"), "make lint does not take PAIR; it takes none of PAIR DATASET"),
        (("smoke", "NAME=x"), "make smoke does not take NAME; it takes ARGS LIMIT"),
        (("smoke", "LIMT=2"), "there is no variable LIMT; the nearest is LIMIT"),
        (("report", "DATADIR=x"), "there is no variable DATADIR; the nearest is DATA_DIR"),
        (("smoke", "pair=tiny"), "there is no variable pair; the nearest is PAIR"),
        (("bench-c4", "x;touch=2"), "there is no variable x;touch; the nearest is "),
        (("new-pair", "TARGT=a", "DRAFT=b"), "there is no variable TARGT; the nearest is TARGET"),
    ],
)
def test_a_variable_that_would_do_nothing_is_refused(arguments, said):
    done = make(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("target", re.findall(r"^([a-z0-9-]+):.*##", MAKEFILE, re.MULTILINE))
def test_what_a_target_takes_is_in_its_recipe(target):
    """A variable is taken exactly where its value stands in what would be run; EXPERIMENT is another name of TABLE."""
    for name in OPTIONS:
        value = f"value_of_{name}"
        done = make(target, f"{name}={value}")
        assert (done.returncode == 0) == (value in done.stdout), (name, done.stdout, done.stderr)


TEXTS = [
    "a b",
    "x; touch run",
    "$(touch run)",
    "`touch run`",
    "$(shell touch run)",
    "${PAIR}",
    "it's",
    'say "so"',
    "*",
    ">run",
]

BESIDE = {"A": ["B=b"], "TARGET": ["DRAFT=d"]}


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    ("goal", "name"),
    [
        *(("plan", name) for name in ("PAIR", "TABLE", "EXPERIMENT", "DATA_DIR", "LIMIT", "MAX_NEW_TOKENS", "RESULTS")),
        ("report", "TABLE"),
        ("compare", "A"),
        ("judge", "TABLE"),
        ("record", "DATASET"),
        ("bench-peers", "PAIR"),
        ("new-pair", "TARGET"),
        ("new-dataset", "FILE"),
        ("new-paper", "TITLE"),
    ],
)
def test_a_value_is_one_word_and_nothing_in_it_is_run(goal, name, text, tmp_path):
    """Recipes are run, with a Python that prints its arguments and runs nothing."""
    echo = tmp_path / "bin" / "python"
    echo.parent.mkdir()
    echo.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    echo.chmod(0o755)
    for place in ("conf", "Makefile"):
        (tmp_path / place).symlink_to(ROOT / place)
    skipped = ["-o", "setup", "-o", "setup-dev", f"VENV={tmp_path}"]
    command = ["make", "-s", *skipped, goal, f"{name}={text}", *BESIDE.get(name, ())]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    words = [word for line in done.stdout.splitlines() for word in ast.literal_eval(line)]
    assert [word for word in words if text in word], done.stderr
    assert not (tmp_path / "run").exists()


def test_nothing_is_run_of_what_the_environment_has(tmp_path):
    environment = os.environ | {"LIMIT": "$(shell touch run)", "PAIR": "$(shell touch run)"}
    command = ["make", "-n", "-o", "setup", "-f", str(ROOT / "Makefile"), "plan"]
    subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert not (tmp_path / "run").exists()


def test_a_recipe_of_several_quotes_a_value_wherever_it_stands():
    assert "calibration.acceptance.prompts=4; touch run" in shlex.split(
        next(
            line
            for line in made("reference", "LIMIT=4; touch run").replace("\\\n", " ").splitlines()
            if "prompts=" in line
        )
    )


def test_short_names_of_the_environment_are_somebody_elses(monkeypatch):
    monkeypatch.setenv("NAME", "DESKTOP")
    assert "DESKTOP" not in made("new-pair", "TARGET=a", "DRAFT=b")
    assert "--name mine" in words("new-pair", "TARGET=a", "DRAFT=b", "NAME=mine")


def test_an_empty_table_of_the_environment_is_none(monkeypatch):
    monkeypatch.setenv("TABLE", "")
    assert "specdec_trees.reproduce opt_tree/table1" in words("reproduce", "EXPERIMENT=opt_tree/table1")


@pytest.mark.parametrize(
    "variable", ["TORCH_LOGS=x", "HF_HUB_OFFLINE=1", "HYDRA_FULL_ERROR=1", "CUDA_VISIBLE_DEVICES=0"]
)
def test_what_programs_read_of_their_environment_is_passed_on(variable):
    assert make("bench-gpu", variable).returncode == 0


def test_a_variable_of_one_of_two_goals_is_taken():
    assert "opt_tree/table1" in made("status", "report", "TABLE=opt_tree/table1")


def test_a_recipe_of_several_passes_on_what_each_takes():
    said = made("reference", "DATA_DIR=folder", "LIMIT=2")
    lines = [words for line in said.replace("\\\n", " ").splitlines() if "limit=2" in (words := shlex.split(line))]
    smoke, *others = lines
    assert "experiment=smoke" in smoke
    assert not [word for word in smoke if "data_dir" in word]
    assert any("data_dir=folder" in line for line in others)


def test_answers_of_embedded_pairs_end_after_64_tokens_unless_asked_otherwise():
    ends = "decoding.max_new_tokens=64"
    for command in (("reproduce", "TABLE=a/b"), ("reproduce-all",), ("bench-c4",), ("plan", "PAIR=tiny")):
        assert ends in words(*command)
        assert "decoding.max_new_tokens=9" in words(*command, "MAX_NEW_TOKENS=9")
        assert "max_new_tokens" not in made(*command, "PAIR=llama2_7b_chat_jf68m")
    assert "max_new_tokens" not in made("plan"), "of the papers' pairs"
    assert ends in words("plan", "TABLE=opt_tree/table1", "PAIR=tiny")
    assert ends in words("plan", "TABLE=bench/c4"), "of no pairs of its own, as bench-c4 runs it"
    assert "max_new_tokens" not in made("plan", "TABLE=opt_tree/table1"), "of its own pairs"
