"""`specdec conformance`: what it says of a file, its exit status, and no traceback for one that cannot be asked."""

import subprocess
import sys

import pytest

from specdec_trees.conformance.__main__ import main

FILE = """
import numpy as np


def target_sample(tokens, parents, draft_probs, target_probs, rng):
    node, path = 0, []
    while True:
        token = int((rng.random() >= np.cumsum(target_probs[node])[:-1]).sum())
        children = [child for child, parent in enumerate(parents) if parent == node and tokens[child] == token]
        if not children:
            return path, token
        node = children[0]
        path.append(node)


def all_of_it(tokens, parents, draft_probs, target_probs, rng):
    return [1], 0


def raises(tokens, parents, draft_probs, target_probs, rng):
    return [], 1 // 0


def other(tokens, parents):
    return [], 0


def nothing(tokens, parents, draft_probs, target_probs, rng):
    return None


number = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "missing.py").write_text("import no_such_module\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "text.txt").write_text("x")
    return path


@pytest.mark.parametrize(
    ("name", "draws", "status"),
    [("target_sample", "iid", 0), ("target_sample", "topk", 0), ("all_of_it", "iid", 1), ("raises", "iid", 1),
     ("nothing", "chain", 1)],
)  # fmt: skip
def test_the_status_says_whether_it_passed(name, draws, status, file, capsys):
    assert main([f"{file}:{name}", "--draws", draws, "--arrays", "numpy", "--samples", "5000"]) == status
    printed = capsys.readouterr()
    assert printed.out.startswith("passed" if status == 0 else "REFUSED")
    assert "Traceback" not in printed.out + printed.err


@pytest.mark.parametrize(
    "reference",
    ["{}/mine.py:other", "{}/mine.py:target_sampel", "{}/mine.py:number", "{}/mine.py", "{}/none.py:f", "{}/text.txt:f",
     "{}/broken.py:f", "{}/missing.py:f", "{}/leaves.py:f", "{}:f", "", ":"],
)  # fmt: skip
def test_what_cannot_be_asked_is_one_sentence(reference, file):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        main([reference.format(file.parent), "--draws", "iid"])


def test_the_command_ends_with_a_sentence_and_status_1(file):
    command = [sys.executable, "-m", "specdec_trees.conformance", f"{file.parent}/missing.py:f", "--draws", "iid"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "no_such_module" in done.stderr
