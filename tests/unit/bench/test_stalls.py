"""Turns that a CPU held up: which are, that arms are treated alike, and that they are decoded again, twice at most."""

import numpy as np
import pandas as pd
import pytest
from cells import cell, word_pair

from specdec_trees.measure import measurement, stalls
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.stalls import Moment, Stalls, Timed, foreign_s
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.statistics import metrics

ARMS = (METHOD, AUTOREGRESSIVE)
STEP_S = 0.01


@pytest.fixture
def quiet_machine() -> None:
    """Here turns are held up."""


def steady(steps: int = 20, seconds: float = STEP_S, load: float = 0.0) -> Timed:
    total = steps * seconds
    return Timed([seconds] * steps, total, load * total)


def burst(lost_s: float, steps: int = 20, seconds: float = STEP_S, load: float = 0.0) -> Timed:
    """One of the steps is held up."""
    times = [seconds] * (steps - 1) + [seconds + lost_s]
    return Timed(times, sum(times), load * sum(times))


def known(load: float = 0.0) -> Stalls:
    found = Stalls()
    for arm in ARMS:
        for _ in range(3):
            found.learn(arm, STEP_S, load)
    return found


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize(("lost_s", "stalled"), [(0.0, False), (0.05, False), (0.11, True), (5.0, True)])
def test_the_same_lost_seconds_are_too_many_in_either_arm(arm, lost_s, stalled) -> None:
    """The method's 20 steps take 0.2 s, the target's 60 take 0.6 s: in both, half of 0.2 s is the limit."""
    turn = {METHOD: steady(20), AUTOREGRESSIVE: steady(60)}
    turn[arm] = burst(lost_s, len(turn[arm].steps))
    assert known().stalled(turn) is stalled


def test_a_context_that_slows_all_steps_down_is_no_stall() -> None:
    for slower in (2.0, 5.0, 20.0):
        turn = {arm: steady(40, STEP_S * slower) for arm in ARMS}
        assert not known().stalled(turn)
        growing = np.linspace(1, slower, 40) * STEP_S
        assert not known().stalled({arm: Timed(growing.tolist(), float(growing.sum()), 0.0) for arm in ARMS})


def test_trees_of_different_sizes_are_no_stall() -> None:
    """Their steps' times are uneven, and so are those of their like."""
    rng, found = np.random.default_rng(0), Stalls()
    turns = [{arm: Timed((STEP_S * rng.uniform(0.5, 2.5, 20)).tolist(), 0.3, 0.0) for arm in ARMS} for _ in range(200)]
    for turn in turns:
        assert not found.stalled(turn)
        for arm, one in turn.items():
            found.learn(arm, one.pace, one.load)


def test_load_that_slows_all_steps_is_one_where_there_is_mostly_none() -> None:
    slow = {arm: steady(40, 2 * STEP_S, load=1.0) for arm in ARMS}
    assert known().stalled(slow)
    assert not known(load=1.0).stalled(slow), "on a machine that is always busy all turns are alike"
    assert not known().stalled({arm: steady(40, load=1.0) for arm in ARMS}), "load on cores that nobody waits for"
    ticks = {arm: Timed([2 * STEP_S], 2 * STEP_S, 2 * STEP_S) for arm in ARMS}
    assert not known().stalled(ticks), "a tick of the clock is no evidence"


def test_nothing_is_told_of_the_first_decodings_or_of_answers_without_a_step() -> None:
    assert not Stalls().stalled({arm: burst(5.0) for arm in ARMS})
    assert not known().stalled({arm: Timed([], 0.1) for arm in ARMS})
    assert known().stalled({METHOD: burst(5.0), AUTOREGRESSIVE: Timed([], 0.1)})


def test_foreign_seconds_are_those_of_the_cores_but_for_our_own() -> None:
    assert foreign_s(Moment(10.0, 3.0), Moment(14.0, 5.0)) == 2.0
    assert foreign_s(Moment(10.0, 3.0), Moment(11.0, 5.0)) == 0.0
    assert foreign_s(Moment(None, 3.0), Moment(None, 5.0)) is None


def simulated(rng: np.random.Generator, speedup: float, conversations: int, *, again: bool) -> float:
    """A speedup over conversations with stalls as often in a second of either arm; with or without repetitions."""
    found, seconds = Stalls(), dict.fromkeys(ARMS, 0.0)
    paces = {METHOD: STEP_S, AUTOREGRESSIVE: STEP_S}
    counts = {METHOD: 20, AUTOREGRESSIVE: round(20 * speedup)}

    def decode(arm: str) -> Timed:
        times = paces[arm] * rng.lognormal(0, 0.05, counts[arm])
        for _ in range(rng.poisson(0.3 * times.sum())):
            times[rng.integers(len(times))] += rng.exponential(0.3)
        return Timed(times.tolist(), float(times.sum()), 0.0)

    for _ in range(2):
        for arm in ARMS:
            found.learn(arm, decode(arm).pace, 0.0)
    for _ in range(conversations):
        for _ in range(stalls.REPEATS + 1):
            turn = {arm: decode(arm) for arm in ARMS}
            if not (stalled := again and found.stalled(turn)):
                break
        for arm, one in turn.items():
            found.learn(arm, one.pace, one.load)
            seconds[arm] += 0.0 if stalled else sum(one.steps)
    return seconds[AUTOREGRESSIVE] / seconds[METHOD]


@pytest.mark.parametrize("speedup", [1.0, 2.5, 0.5])
def test_repetitions_favour_no_arm_and_narrow_what_is_measured(speedup) -> None:
    """A/A stays at 1, and so do methods that are faster or slower, whose decodings are shorter or longer."""
    drawn = {
        again: [simulated(np.random.default_rng(seed), speedup, 8, again=again) for seed in range(300)]
        for again in (True, False)
    }
    logs = {again: np.log(np.array(values) / speedup) for again, values in drawn.items()}
    assert abs(logs[True].mean()) < 0.02
    assert logs[True].std() < 0.6 * logs[False].std()


@pytest.fixture
def held_up(monkeypatch):
    """A measurement whose turns of one conversation stall so often, in this arm; and the arms in order of decoding."""

    def make(times: int, arm: str, talks: int = 3):
        rows, order, left = Rows(), list[tuple[str, str]](), [times]
        made = Measurement(cell("drafter=chain4", new=8), word_pair(), rows, Runtime())
        original = made._timed

        def timed(turn, which, most=None):
            generation, _ = original(turn, which, most)
            order.append((turn.conversation.id, which))
            stall = turn.conversation.id == "talk2" and which == arm and left[0] > 0
            left[0] -= stall
            return generation, burst(9.0 if stall else 0.0, max(len(generation.steps), 1))

        monkeypatch.setattr(made, "_timed", timed)
        for place in range(talks):
            made.run(Conversation(f"talk{place}", ("w3 w7",)), place=place)
        return rows, order

    return make


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize(
    ("times", "repeats", "contaminated"), [(0, 0, False), (1, 1, False), (2, 2, False), (9, 2, True)]
)
def test_a_stalled_turn_is_decoded_again_in_both_arms_twice_at_most(held_up, arm, times, repeats, contaminated) -> None:
    rows, order = held_up(times, arm)
    assert [one for name, one in order if name == "talk2"] == [METHOD, AUTOREGRESSIVE] * (repeats + 1)
    mine = [row for row in rows.prompts if row.prompt_id == "talk2"]
    assert {(row.repeats, row.contaminated) for row in mine} == {(repeats, contaminated)}
    assert len(mine) == 2
    assert {(row.repeats, row.contaminated) for row in rows.prompts if row.prompt_id != "talk2"} == {(0, False)}
    found = rows.aggregates()
    assert (found["num_repeated"], found["num_contaminated"]) == (int(repeats > 0), 2 * contaminated)


def test_what_stays_stalled_counts_in_acceptance_and_in_no_time(held_up) -> None:
    rows, _ = held_up(9, METHOD)
    prompts, steps = pd.DataFrame(rows.prompts), pd.DataFrame(rows.steps)
    calm = prompts[prompts["prompt_id"] != "talk2"]
    for arm in ARMS:
        assert metrics.tokens_per_s(prompts, arm) == metrics.tokens_per_s(calm, arm)
    assert rows.aggregates()["mal"] == metrics.mal(steps)
    assert set(steps["prompt_id"]) == {"talk0", "talk1", "talk2"}
    again, _ = held_up(1, METHOD)
    assert [row.output_ids for row in again.prompts] == [row.output_ids for row in rows.prompts]


def test_which_arm_goes_first_alternates_by_place_and_turn(monkeypatch) -> None:
    """Whatever conversations are called; and also where a cell goes on in the middle of its list."""
    monkeypatch.setattr(stalls, "REPEATS", 0)
    made = cell("drafter=chain4", new=4)
    for name in ("a", "b"):
        rows = Rows()
        measuring = Measurement(made, word_pair(), rows, Runtime())
        for place in (0, 1, 3, 4):
            measuring.run(Conversation(f"{name}{place}", ("w3 w7", "w1")), place=place)
        firsts = [row.arm for row in rows.prompts[::2]]
        even, odd = [METHOD, AUTOREGRESSIVE], [AUTOREGRESSIVE, METHOD]
        assert firsts == [*even, *odd, *odd, *even]


@pytest.fixture
def warmed(monkeypatch):
    """How many rounds a warm-up takes whose decodings take so long for a step, one after another."""

    def make(paces: list[float], cold_s: float = 0.0, most_s: float = 10.0) -> int:
        monkeypatch.setattr(measurement, "COLD_S", cold_s)
        monkeypatch.setattr(measurement, "WARMUP_S", most_s)
        monkeypatch.setattr(measurement, "_warm", iter([0]))
        made, left, rounds = (
            Measurement(cell("drafter=chain4", new=4), word_pair(), Rows(), Runtime()),
            iter(paces),
            [0],
        )
        monkeypatch.setattr(measurement.time, "monotonic", lambda: rounds[0] / 2)

        def timed(turn, arm, most=None):
            rounds[0] += 1
            return None, steady(4, next(left))

        monkeypatch.setattr(made, "_timed", timed)
        made.warm_up(Conversation("talk", ("w3 w7",)))
        return rounds[0] // 2

    return make


def test_a_warm_up_ends_where_two_decodings_of_each_arm_agree(warmed) -> None:
    assert warmed([1.0, 2.0] * 9) == 2
    assert warmed([9.0, 2.0, 1.0, 2.0, 1.05, 2.1, 1.0, 2.0]) == 3, "the first of the method was cold"
    assert warmed([1.0, 9.0, 1.0, 3.0, 1.0, 2.0, 1.0, 2.0]) == 4, "the target's arm took longer to settle"
    assert warmed([float(2**place) for place in range(40)], most_s=99.0) == measurement.WARMUP_MOST


def test_a_warm_up_is_bounded_in_seconds_and_longer_in_a_cold_process(warmed) -> None:
    """A round takes a second."""
    assert warmed([float(2**place) for place in range(40)], most_s=2.5) == 3
    assert warmed([1.0, 2.0] * 20, cold_s=5.0) == 5
