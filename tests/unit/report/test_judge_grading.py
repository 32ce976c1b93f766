"""The command against a server on this machine: rows, what is asked again, limits, and how it ends."""

from dataclasses import replace

import pytest
from judge_server import refuses, says, serving

from specdec_trees.judge import grading, prompts
from specdec_trees.judge.__main__ import main
from specdec_trees.results import rows
from specdec_trees.results.judgements import judgement_rows, still_valid
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD, AnswerRow, JudgementRow
from specdec_trees.results.store import Store, load

pytestmark = pytest.mark.long


KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def folder(cells):
    """Two runs of three conversations of two turns; the target's answers are the same in both, but for the run."""
    for number in range(2):
        run = cells.add(f"ti{number}", "target_init_mcsd", seed=number)
        rows = [
            AnswerRow(
                run_id=run, prompt_id=f"p{place}", turn=turn, arm=arm, question=f"question {place} {turn}",
                answer=f"answer {place} {turn} of {arm}" + str(number) * (arm == METHOD), reference=None,
            )
            for place in range(3) for turn in range(2) for arm in (METHOD, AUTOREGRESSIVE)
        ]  # fmt: skip
        cells.store.write("answers", run, rows)
    return cells.store.folder


def run(server, folder, *arguments, key=KEY, model="judge-1"):
    environment = {"JUDGE_BASE_URL": server.base, "JUDGE_MODEL": model, "JUDGE_API_KEY": key}
    return main([str(folder), *arguments], environment)


def judgements(folder):
    return load(folder.parent, folder.name).judgements


def by_answer(number, body):
    """A grade that tells the method's answers from the target's."""
    return says(f"Score: {3 if 'of method' in body['messages'][1]['content'].split('<answer>')[1] else 9}")


def test_every_answer_gets_a_grade_and_the_same_is_asked_once(folder, capsys):
    with serving(by_answer) as server:
        assert run(server, folder) == 0
    rows = judgements(folder)
    assert len(rows) == 24
    assert len(server.requests) == 18, "6 of each run's method, 6 of the target"
    assert rows.groupby("arm")["score"].unique().map(list).to_dict() == {METHOD: [3.0], AUTOREGRESSIVE: [9.0]}
    assert set(rows["judge"]) == {"judge-1"}
    assert set(rows["prompt_version"]) == {prompts.VERSION}
    assert rows["error"].isna().all()
    assert (rows["reply"].str.startswith("Score: ")).all()
    printed = capsys.readouterr().out
    assert "24 answers: 0 graded before, 18 asked about, 6 the same as others, 0 left" in printed
    assert printed.count("mean grade 3.00 over 6 turns") == printed.count("mean grade 9.00 over 6 turns") == 2


def test_second_turns_show_the_first(folder):
    with serving(by_answer) as server:
        run(server, folder)
    texts = [body["messages"][1]["content"] for body in server.requests]
    seconds = [text for text in texts if "<earlier_answer>" in text]
    assert len(seconds) == 9
    assert all("question 1 0" in text and "answer 1 0 of" in text for text in seconds if "question 1 1" in text)


def test_it_goes_on_where_it_was(folder):
    with serving(by_answer) as server:
        assert run(server, folder, "--limit", "5") == 0
        assert len(server.requests) == 5
        first = judgements(folder)
        assert run(server, folder) == 0
        assert len(server.requests) == 18
        assert run(server, folder) == 0
        assert len(server.requests) == 18, "nothing is left"
    both = judgements(folder).merge(first, on=["run_id", "prompt_id", "turn", "arm", "created_utc"])
    assert len(both) == len(first), "what was graded before is as it was"


def test_another_judge_has_rows_of_its_own(folder):
    with serving(by_answer) as server:
        run(server, folder)
        run(server, folder, model="judge-2")
    rows = judgements(folder)
    assert rows["judge"].value_counts().to_dict() == {"judge-1": 24, "judge-2": 24}


def test_other_prompts_have_rows_of_their_own(folder, monkeypatch):
    with serving(by_answer) as server:
        run(server, folder)
        monkeypatch.setattr(prompts, "VERSION", "next")
        run(server, folder)
    assert judgements(folder)["prompt_version"].value_counts().to_dict() == {"1": 24, "next": 24}


@pytest.mark.parametrize("reply", ["I like it.", "Score: 11"])
def test_a_reply_without_a_grade_is_kept_and_asked_for_again(folder, reply):
    with serving(says(reply)) as server:
        assert run(server, folder, "--limit", "2") == 1
    rows = judgements(folder)
    assert len(rows) == 2
    assert rows["score"].isna().all()
    assert set(rows["reply"]) == {reply}
    assert rows["error"].str.startswith("no grade: ").all()
    with serving(by_answer) as server:
        assert run(server, folder) == 0
    assert judgements(folder)["score"].notna().all()
    assert len(judgements(folder)) == 24


def test_refusals_of_one_answer_leave_the_others(folder):
    def script(number, body):
        return refuses(400, f"too long {KEY}") if "question 0 0" in body["messages"][1]["content"] else says("Score: 5")

    with serving(script) as server:
        assert run(server, folder) == 1
    rows = judgements(folder)
    failed = rows[rows["score"].isna()]
    assert set(failed["prompt_id"]) == {"p0"}
    assert failed["error"].unique().tolist() == ["the endpoint answers 400 (too long [key])"]
    assert len(rows) == 24


def test_a_wrong_key_stops_it_and_what_was_graded_is_kept(folder, capsys):
    with serving([says("Score: 5")] * 3 + [refuses(401, f"no such key {KEY}")]) as server:
        assert run(server, folder, "--parallel", "1") == 2
        assert len(server.requests) == 4
    said = capsys.readouterr()
    assert "answers 401: JUDGE_API_KEY is missing or is not accepted (no such key [key])" in said.err
    assert said.err.count("\n") == 1
    assert KEY not in said.err + said.out
    assert judgements(folder)["score"].tolist() == [5.0] * len(judgements(folder))
    assert len(judgements(folder)) >= 3


def test_an_endpoint_that_is_down_is_given_up(folder, capsys):
    with serving(refuses(500, "down")) as server:
        assert run(server, folder, "--tries", "1", "--parallel", "1") == 2
        assert len(server.requests) <= grading.GIVE_UP_AFTER + 1
    assert "8 requests in a row got no reply; the last: the endpoint answers 500 (down)" in capsys.readouterr().err


def test_the_key_is_in_no_file(folder):
    with serving(says(f"{KEY}\nScore: 4")) as server:
        run(server, folder)
    for path in folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()
    assert not judgements(folder).map(lambda value: KEY in str(value)).any(axis=None)
    assert set(judgements(folder)["reply"]) == {"[key]\nScore: 4"}


def test_requests_are_at_most_so_many_at_a_time(folder):
    for parallel, seconds in ((1, 0.05), (3, 0.3)):
        with serving(by_answer, delay=lambda number, seconds=seconds: seconds) as server:
            run(server, folder, "--parallel", str(parallel), model=f"judge-{parallel}")
            assert server.most_at_once == parallel


def test_ctrl_c_keeps_what_was_graded(folder, monkeypatch, capsys):
    real = grading.Grading._keep
    seen = []

    def keep(self, row):
        real(self, row)
        seen.append(row)
        if len(seen) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(grading.Grading, "_keep", keep)
    with serving(by_answer) as server:
        assert run(server, folder, "--parallel", "1") == 130
    assert "stopped; what was graded is kept" in capsys.readouterr().err
    assert len(judgements(folder)) >= 3
    assert len(server.requests) < 18


def test_runs_are_locked_against_the_benchmark(folder, capsys):
    store = Store(folder.parent, folder.name)
    run_id = store.read("runs")["run_id"].iloc[0]
    with store.lock(run_id), serving(by_answer) as server:
        assert run(server, folder) == 2
        assert server.requests == []
    assert f"Cell {run_id} is being run or graded by another process" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "words"), [("JUDGE_BASE_URL", "JUDGE_BASE_URL is not set"), ("JUDGE_MODEL", "JUDGE_MODEL is not set")]
)
def test_what_is_missing_is_said(folder, missing, words, capsys):
    environment = {"JUDGE_BASE_URL": "http://127.0.0.1:1/v1", "JUDGE_MODEL": "judge"}
    del environment[missing]
    assert main([str(folder)], environment) == 2
    assert words in capsys.readouterr().err


def test_folders_without_answers_are_refused(cells, tmp_path, capsys):
    environment = {"JUDGE_BASE_URL": "http://127.0.0.1:1/v1", "JUDGE_MODEL": "judge"}
    assert main([str(tmp_path / "none")], environment) == 2
    assert "is no results folder" in capsys.readouterr().err
    cells.add("opt_tree")
    assert main([str(cells.store.folder)], environment) == 2
    assert "holds no answers; run its experiment with record_answers=true" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("--limit", "0"), ("--parallel", "-1"), ("--timeout", "nan"), ("--tries", "x")])
def test_options_are_checked(folder, option, capsys):
    with pytest.raises(SystemExit):
        main([str(folder), *option], {})
    assert option[0] in capsys.readouterr().err


def test_judgements_are_forgotten_with_their_run(folder):
    with serving(by_answer) as server:
        run(server, folder)
    store = Store(folder.parent, folder.name)
    run_id = store.read("runs")["run_id"].iloc[0]
    store.forget(run_id)
    assert not store.has("judgements", run_id)
    assert rows.TABLES["judgements"] is JudgementRow


def test_answers_that_no_judge_takes_do_not_stop_the_others(folder):
    """More of them in a row than requests that may fail before the endpoint is given up; then again, with a grade."""
    many = grading.GIVE_UP_AFTER + 2
    with serving(lambda number, body: refuses(400, "too long") if number < many else says("Score: 5")) as server:
        assert run(server, folder, "--parallel", "1") == 1
    assert len(server.requests) == 18
    assert judgements(folder)["score"].notna().sum() >= 18 - many
    with serving(says("Score: 5")) as server:
        assert run(server, folder) == 0
    assert len(server.requests) == many


def test_grades_outlive_a_run_whose_answers_are_the_same(folder):
    """Of two conversations as they were, and one that has another second answer."""
    with serving(by_answer) as server:
        run(server, folder)
    store = Store(folder.parent, folder.name)
    run_id = store.read("runs")["run_id"].iloc[0]
    before, judged = (store.read(table, [run_id]) for table in ("answers", "judgements"))
    rows = [AnswerRow(**{**row, "reference": None}) for row in before.to_dict("records")]
    kept = still_valid(judged, before, rows)
    assert kept == judgement_rows(judged)
    assert len(kept) == 12
    changed = [replace(row, answer="other") if (row.prompt_id, row.turn) == ("p1", 1) else row for row in rows]
    assert {row.prompt_id for row in still_valid(judged, before, changed)} == {"p0", "p2"}
    assert still_valid(judged, before, []) == []
