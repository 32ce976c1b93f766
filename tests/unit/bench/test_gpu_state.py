"""What a GPU says of itself, by a pretended NVML: columns of prompts, and times without what was disturbed."""

import os
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from cells import cell, word_pair

from specdec_trees.measure import gpu_state
from specdec_trees.measure.cell import Runtime
from specdec_trees.measure.gpu_state import Facts, Gpu, between
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.statistics import metrics, samples

TALKS = [Conversation(f"talk{number}", ("w3 w7", "w1")) for number in range(3)]
OWN = os.getpid()


class NVMLError(Exception):
    pass


class Nvml:
    """The module, and the only card. Calls that are not given raise, as on cards that do not tell."""

    NVMLError, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = NVMLError, 1, 0

    def __init__(self, **told):
        self.told, self.energy = told, 0

    def nvmlDeviceGetHandleByUUID(self, uuid):
        assert uuid == "GPU-1234"
        return "handle"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        self.energy += 5000
        return self.energy

    def __getattr__(self, name):
        short = name.removeprefix("nvmlDeviceGet")

        def ask(handle, *arguments):
            assert handle == "handle"
            if short not in self.told:
                raise NVMLError(name)
            return self.told[short](*arguments)

        return ask


def card(reasons=0, pids=(OWN,), **more):
    told = {
        "ClockInfo": lambda kind: {1: 1410}[kind],
        "Temperature": lambda sensor: {0: 61}[sensor],
        "PowerUsage": lambda: 250_500,
        "CurrentClocksThrottleReasons": lambda: reasons() if callable(reasons) else reasons,
        "ComputeRunningProcesses": lambda: [SimpleNamespace(pid=pid) for pid in pids],
    }
    return Gpu(Nvml(**(told | more)), "handle")


def facts(gpu):
    return between(gpu.look(), gpu.look())


def test_what_is_asked_becomes_columns():
    found = facts(card())
    assert found == Facts(
        sm_clock_mhz=1410,
        temperature_c=61,
        power_w=250.5,
        energy_j=5.0,
        throttle_reasons="",
        foreign_processes=0,
        contaminated=False,
    )


@pytest.mark.parametrize(
    ("bits", "said", "spoilt"),
    [
        (0x0, "", False),
        (0x1 | 0x2 | 0x10 | 0x100, "", False),
        (0x4, "power cap", False),
        (0x8, "hardware slowdown", True),
        (0x20 | 0x4, "power cap, software thermal", True),
        (0x40, "hardware thermal", True),
        (0x80, "power brake", True),
    ],
)
def test_reasons_of_throttling(bits, said, spoilt):
    found = facts(card(reasons=bits))
    assert (found.throttle_reasons, found.contaminated) == (said, spoilt)


def test_a_reason_at_either_end_counts():
    bits = iter([0x40, 0x0])
    assert facts(card(reasons=lambda: next(bits))).contaminated


@pytest.mark.parametrize(
    ("pids", "foreign"),
    [((OWN,), 0), ((OWN, 7), 1), ((7, 8), 1), ((7,), 0), ((), 0)],
    ids=["own", "another", "another in a container", "own in a container", "not listed"],
)
def test_foreign_processes(pids, foreign):
    found = facts(card(pids=pids))
    assert (found.foreign_processes, found.contaminated) == (foreign, foreign > 0)


def test_a_card_that_tells_little_says_nothing_of_contamination():
    found = facts(Gpu(Nvml(), "handle"))
    assert found == Facts(energy_j=5.0)
    assert between(None, None) == Facts()


def test_the_gpu_of_a_device(monkeypatch):
    monkeypatch.setattr(gpu_state, "_nvml", lambda: Nvml())
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234"))
    assert isinstance(Gpu.of(torch.device("cuda:0")), Gpu)
    assert Gpu.of(torch.device("cpu")) is None
    monkeypatch.setattr(Nvml, "nvmlDeviceGetHandleByUUID", lambda *_: (_ for _ in ()).throw(NVMLError))
    assert Gpu.of(torch.device("cuda:0")) is None
    monkeypatch.setattr(gpu_state, "_nvml", lambda: None)
    assert Gpu.of(torch.device("cuda:0")) is None


@pytest.fixture(scope="module")
def disturbed():
    """Rows of three conversations, the second of which was decoded in the heat."""
    made, rows = cell("drafter=chain4", new=8), Rows()
    measurement = Measurement(made, word_pair(), rows, Runtime())
    for talk in TALKS:
        measurement.gpu = card(reasons=0x40 if talk.id == "talk1" else 0)
        measurement.run(talk)
    return rows


def test_times_leave_out_what_was_disturbed(disturbed):
    prompts = pd.DataFrame(disturbed.prompts)
    assert prompts.loc[prompts["contaminated"], "prompt_id"].unique().tolist() == ["talk1"]
    calm = prompts[prompts["prompt_id"] != "talk1"]
    for arm in (METHOD, AUTOREGRESSIVE):
        assert metrics.tokens_per_s(prompts, arm) == pytest.approx(metrics.tokens_per_s(calm, arm), rel=1e-12)
        both = (metrics.tokens_per_s_with_prefill(rows, arm) for rows in (prompts, calm))
        assert next(both) == pytest.approx(next(both), rel=1e-12)
        new = calm.loc[calm["arm"] == arm, "num_new_tokens"].sum()
        assert metrics.joules_per_token(prompts, arm) == pytest.approx(5.0 * len(calm) / 2 / new)
    speedup = samples.interval(samples.speedup(prompts))
    assert speedup == samples.interval(samples.speedup(calm))
    assert speedup.n == 2
    assert samples.interval(samples.speedup(prompts.assign(contaminated=False))).n == 3


def test_the_run_says_how_many(disturbed):
    found = disturbed.aggregates()
    assert found["num_contaminated"] == 4
    assert found["num_conversations"] == 3
    assert found["mal"] == metrics.mal(pd.DataFrame(disturbed.steps)), "tokens count as ever"
    assert found["joules_per_token"] > 0
    assert found["autoregressive_joules_per_token"] > 0


def test_without_nvml_a_cpus_calm_turns_are_all_counted():
    rows = Rows()
    Measurement(cell("drafter=chain4", new=8), word_pair(), rows, Runtime()).run(TALKS[0])
    assert {row.contaminated for row in rows.prompts} == {False}
    found = rows.aggregates()
    assert (found["num_contaminated"], found["joules_per_token"]) == (0, None)
    assert found["speedup"] > 0
