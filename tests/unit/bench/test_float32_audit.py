"""Half precision once more in float32: what is compared, what it finds, and that weights come back as they were."""

import contextlib
import copy
import math
from dataclasses import replace

import pytest
import torch
from cells import cell, execute
from test_measurement import Wrong
from torch import nn

from specdec_trees.measure import float32_audit, pairs, runner
from specdec_trees.measure.cell import Cell, Runtime
from specdec_trees.measure.decoding import Decoding
from specdec_trees.measure.float32_audit import audit_in_float32
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.to_rows import Rows
from specdec_trees.prompts import datasets
from specdec_trees.results.rows import METHOD
from specdec_trees.results.store import Store
from specdec_trees.results.ties import is_tie

HALF = Runtime(device="cpu", dtype="bfloat16", num_threads=1)
DRAFTERS = {"tiny": "opt_tree", "tiny_eagle": "eagle2", "tiny_eagle3": "dyspec", "tiny_medusa": "opt_tree"}
DRAFTERS |= {"tiny_self": "ssd"}


def said(wanted: Cell, runtime: Runtime = HALF) -> list[bool | None]:
    """What the audit says of the first turns of three conversations, in order."""
    pair = pairs.loaded(wanted.pair, runtime)
    conversations = datasets.load(wanted.dataset, data_dir=None, limit=3)
    measurement = Measurement(wanted, pair, rows := Rows(), runtime)
    for conversation in conversations:
        measurement.run(conversation)
    audit_in_float32(wanted, pair, runtime, rows.prompts, conversations)
    assert all(row.identical_float32 is None for row in rows.prompts if row.arm != METHOD or row.turn)
    return [row.identical_float32 for row in rows.prompts if row.arm == METHOD and row.turn == 0]


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_inside_a_pair_decodes_as_its_copy_in_float32_and_afterwards_as_before(kind):
    wanted = cell(f"drafter={DRAFTERS[kind]}", f"pair={kind}")
    pairs.release()
    pair = pairs.loaded(wanted.pair, HALF)
    whole = copy.deepcopy(pair)
    (conversation,) = datasets.load(wanted.dataset, data_dir=None, limit=1)

    def decoded(models):
        decoding = Decoding(wanted, models, HALF)
        done = decoding.decode(decoding.turn(conversation, 0, []), METHOD)
        return done.tokens, [(step.num_drafted, step.expected_acceptance) for step in done.steps]

    before, weights = decoded(pair), [tensor.clone() for tensor in pair.halves]
    for part in [part for model in (whole.target, whole.draft) for part in vars(model).values()]:
        if isinstance(part, nn.Module):
            part.float()
    with pair.in_float32():
        assert not pair.halves
        exact = decoded(pair)
    with whole.in_float32():  # it is by now, and has caches of its own inside
        assert exact == decoded(whole)
    with contextlib.suppress(KeyError), pair.in_float32():
        raise KeyError
    assert weights
    assert all(torch.equal(one, other) for one, other in zip(weights, pair.halves, strict=True))
    assert decoded(pair) == before


def test_the_first_prompts_of_a_greedy_cell_are_audited():
    assert said(cell("drafter=opt_tree")) == [True, True, None]
    assert said(cell("drafter=gsd", "pair=tiny_eagle")) == [True, True, None]


def test_a_rule_that_loses_the_targets_output_is_told():
    wrong = cell("drafter=chain4", rule=Wrong(), allow_lossy=True)
    assert said(wrong) == [False, False, None]


@pytest.mark.parametrize("place", [(float32_audit, "_agree"), (runner, "limit_tokens_per_s")], ids=lambda at: at[1])
def test_what_fails_behind_the_last_prompt_leaves_the_cell_as_it_was_measured(place, monkeypatch, tmp_path):
    def fails(*_):
        raise torch.OutOfMemoryError("none is left")

    few = ("runtime.dtype=bfloat16", "limit=1", "decoding.max_new_tokens=4")
    with monkeypatch.context() as patch:
        patch.setattr(*place, fails)
        assert execute(tmp_path / "short", *few) == runner.OK
    run, prompts = (Store(tmp_path / "short", "default").read(table) for table in ("runs", "prompts"))
    assert run["limit_tokens_per_s"].isna().all()
    assert run["excerpt"].notna().all()
    assert prompts["identical_float32"].isna().all() == (place[1] == "_agree")
    assert said(cell("drafter=chain4")) == [True, True, None], "weights are as they were"


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", DRAFTERS)
def test_weights_that_are_shared_stay_shared(kind):
    pairs.release()
    pair = pairs.loaded(cell(f"drafter={DRAFTERS[kind]}", f"pair={kind}").pair, HALF)

    def stored():
        return sum(size for size in {t.data_ptr(): t.nbytes for t in pair.halves}.values())

    before = stored()
    with pair.in_float32():
        pass
    assert stored() == before


def test_nothing_is_said_without_a_baseline_or_where_weights_stay_as_they_are(monkeypatch):
    assert said(cell("drafter=chain4"), replace(HALF, baseline=False)) == [None] * 3
    assert said(cell("drafter=chain4"), replace(HALF, dtype="float32")) == [None] * 3
    monkeypatch.setattr(float32_audit, "free_bytes", lambda _: 0)
    assert said(cell("drafter=chain4")) == [None] * 3


@pytest.mark.parametrize(
    ("largest", "dtype", "unit"),
    [
        *((20.0, "bfloat16", 0.125), (31.9, "bfloat16", 0.125), (32.0, "bfloat16", 0.25), (0.75, "bfloat16", 2**-8)),
        *((20.0, "float16", 2**-6), (-20.0, "float16", 2**-6), (20.0, "float32", 2**-19)),
    ],
)
def test_a_tie_is_some_units_in_the_last_place_of_the_largest_logit(largest, dtype, unit):
    value = torch.tensor(largest, dtype=getattr(torch, dtype))
    below = torch.nextafter(value, torch.zeros_like(value))
    assert abs(float(value - below)) == (unit if largest != 32 else unit / 2)
    units = 64 if dtype == "float32" else 8
    assert is_tie(units * unit, largest, dtype)
    assert not is_tie(1.001 * units * unit, largest, dtype)
    assert not is_tie(math.inf, largest, dtype)
    assert not is_tie(0.0, math.nan, dtype)
