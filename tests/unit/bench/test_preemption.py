"""SIGTERM between prompts: noted, and not forgotten where the prompt at hand fails."""

import os
import signal

import pytest

from specdec_trees.measure.preemption import STATUS, Preempted, awaited


def test_a_prompt_that_fails_after_sigterm_ends_the_process_all_the_same():
    def failing() -> None:
        with awaited() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.asked
            raise ValueError

    with pytest.raises(Preempted) as ended:
        failing()
    assert ended.value.code == STATUS
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_without_sigterm_a_failure_is_itself():
    with pytest.raises(ValueError, match="own"), awaited():
        raise ValueError("own")
