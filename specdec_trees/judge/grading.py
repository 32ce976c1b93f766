"""Ask a judge about the answers of results folders, and keep what it says in their table `judgements`.

What has a grade from the same judge for the same prompts is not asked again, nor is a question twice: runs on one
target share its own answers. Rows are written as replies come in, so that a run that is stopped goes on where it was.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tqdm import tqdm

from specdec_trees.judge import prompts
from specdec_trees.judge.client import Endpoint, JudgeError, NoReplyError
from specdec_trees.judge.questions import Book, Key, Question, key_of, questions
from specdec_trees.results import progress, store
from specdec_trees.results.judgements import judgement_rows
from specdec_trees.results.rows import JudgementRow

NO_SCORE = f'no grade: the last line is not "Score: " and a number from {prompts.LOWEST:g} to {prompts.HIGHEST:g}'
GIVE_UP_AFTER, WRITE_EVERY = 8, 10
"""Requests in a row without a reply, after which the endpoint is taken to be down; replies between two writes."""


class StoppedError(Exception):
    """Another request ended everything."""


@dataclass
class Summary:
    """What grading came to."""

    answers: int = 0
    known: int = 0
    """Had a grade before."""
    shared: int = 0
    """Have that of the same answer elsewhere."""
    asked: int = 0
    failed: int = 0
    """Of those asked, without a grade."""
    left: int = 0
    """Not asked, for the limit."""


@dataclass
class Grading:
    """All questions of some folders and the books that their grades go to; holds the locks of their runs."""

    endpoint: Endpoint
    books: dict[str, Book] = field(default_factory=dict)
    found: list[Question] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    _missed: set[Key] = field(default_factory=set)
    """Questions without a reply that another request might get."""

    def grade(self, *, limit: int | None = None, parallel: int = 4, progress: bool = True) -> Summary:
        """Ask what is not known, `parallel` at a time and at most `limit` in all.

        JudgeError where the endpoint cannot be used; what it said until then is kept, as on Ctrl-C.
        """
        known, waiting = self._known(), dict[str, list[Question]]()
        before = {question.digest: known[question.key] for question in self.found if question.key in known}
        unknown = [question for question in self.found if question.key not in known]
        summary = Summary(answers=len(self.found), known=len(self.found) - len(unknown))
        for question in unknown:
            if question.digest in before:
                self._keep(_for(before[question.digest], question.key))
                summary.shared += 1
            else:
                waiting.setdefault(question.digest, []).append(question)
        wanted = list(waiting.values())
        asked = wanted[:limit]
        summary.left = sum(map(len, wanted[len(asked) :]))
        try:
            self._ask_all(asked, summary, parallel, progress)
        finally:
            self._write()
        return summary

    def _ask_all(self, asked: Sequence[list[Question]], summary: Summary, parallel: int, progress: bool) -> None:
        in_a_row, pool = 0, ThreadPoolExecutor(parallel)
        futures: dict[Future[JudgementRow], list[Question]] = {}
        try:
            futures.update((pool.submit(self._row, same[0]), same) for same in asked)
            for future in tqdm(as_completed(futures), total=len(futures), unit="answer", disable=not progress):
                try:
                    row, same = future.result(), futures[future]
                except StoppedError:
                    continue  # another future holds the reason
                for question in same:
                    self._keep(_for(row, question.key))
                summary.asked += 1
                summary.shared += len(same) - 1
                summary.failed += row.score is None
                in_a_row = in_a_row + 1 if key_of(row) in self._missed else 0
                if in_a_row >= GIVE_UP_AFTER:
                    raise JudgeError(f"{in_a_row} requests in a row got no reply; the last: {row.error}")
                if summary.asked % WRITE_EVERY == 0:
                    self._write()
        finally:
            self.stop.set()
            if sent := sum(future.running() for future in futures):
                print(f"stopping; waiting for {sent} requests that were sent", file=sys.stderr)
            pool.shutdown(wait=True, cancel_futures=True)
            self._rescue(futures)

    def _rescue(self, futures: dict[Future[JudgementRow], list[Question]]) -> None:
        """Keep what came in while the others were being stopped."""
        for future, same in futures.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                for question in same:
                    self._keep(_for(future.result(), question.key))

    def _row(self, question: Question) -> JudgementRow:
        """What the judge says of an answer; a row without a grade where it says none. StoppedError, JudgeError."""
        score, error, reply = None, None, None
        self._sleep(0)
        try:
            reply = replace(self.endpoint, sleep=self._sleep).ask(question.messages)
            score = prompts.score(reply)
            error = NO_SCORE if score is None else None
        except NoReplyError as problem:
            error = str(problem)
            if problem.passing:
                self._missed.add(question.key)
        except JudgeError:
            self.stop.set()
            raise
        run_id, prompt_id, turn, arm = question.key
        return JudgementRow(
            run_id=run_id,
            prompt_id=prompt_id,
            turn=turn,
            arm=arm,
            judge=self.endpoint.hidden(self.endpoint.model),
            prompt_version=prompts.VERSION,
            score=score,
            error=error,
            reply=reply,
            created_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        )

    def _sleep(self, seconds: float) -> None:
        """Wait for the next try, unless all is to stop."""
        if self.stop.wait(seconds):
            raise StoppedError("stopped before the next try")

    def _known(self) -> dict[Key, JudgementRow]:
        """The grades of this judge for these prompts."""
        mine = self.endpoint.hidden(self.endpoint.model), prompts.VERSION
        rows = (row for book in self.books.values() for row in book.rows)
        return {key_of(row): row for row in rows if (row.judge, row.prompt_version) == mine and row.score is not None}

    def _keep(self, row: JudgementRow) -> None:
        self.books[row.run_id].add(row)

    def _write(self) -> None:
        for book in self.books.values():
            book.write()


@contextlib.contextmanager
def opened(folders: Sequence[Path], endpoint: Endpoint) -> Iterator[Grading]:
    """The answers of the newest run of every cell in these folders, locked; JudgeError where there are none."""
    grading = Grading(endpoint)
    with contextlib.ExitStack() as held:
        for folder in dict.fromkeys(Path(folder).resolve() for folder in folders):
            here = store.at(folder)
            if not here.rows("runs").ids():
                raise JudgeError(
                    f"{folder} is no results folder: it has no runs; give one such as results/<experiment>"
                )
            results = store.load(here.root, here.experiment, first=progress.planned_runs(folder))
            done = results.runs.loc[results.runs["status"] == "ok", "run_id"]
            runs = [run for run in done if here.has("answers", run)]
            if not runs:
                raise JudgeError(f"{folder} holds no answers; run its experiment with record_answers=true")
            for run in runs:
                held.enter_context(here.lock(run))
                grading.books[run] = Book(here, run, judgement_rows(here.read("judgements", [run])))
                grading.found += questions(here.read("answers", [run]))
        yield grading


def _for(row: JudgementRow, key: Key) -> JudgementRow:
    """The same judgement of the same answer elsewhere."""
    run_id, prompt_id, turn, arm = key
    return replace(row, run_id=run_id, prompt_id=prompt_id, turn=turn, arm=arm)
