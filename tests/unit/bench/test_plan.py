import shlex
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from cells import execute

from specdec_core.errors import LoadError
from specdec_core.models import ModelSpec
from specdec_trees.artifacts.devices import parse
from specdec_trees.calibrate.prices import shape_of
from specdec_trees.locations import CONF
from specdec_trees.measure.cell import PairSpec
from specdec_trees.papers.registry import ARTIFACTS
from specdec_trees.plan import __main__ as plan
from specdec_trees.plan import planning
from specdec_trees.plan import times as plan_times
from specdec_trees.plan.estimates import Memory, mal_of, memory_of
from specdec_trees.plan.jobs import sweep
from specdec_trees.plan.overview import overview
from specdec_trees.plan.times import Machine, measured_times, of_machine, seconds
from specdec_trees.plan.trees import size
from specdec_trees.results.kept_rows import LatencyRow
from specdec_trees.results.store import Store, load

EXPERIMENTS = sorted(
    path.relative_to(CONF / "experiment").with_suffix("").as_posix() for path in (CONF / "experiment").rglob("*.yaml")
)
SHORT = {"smoke", "opt_tree/fig3", "sequoia/table1", "sequoia/table6", "dyspec/table5", "gsd/table2"}
SHORT |= {"improving_mcsd/fig7", "traversal/table2", "bench/budget"}
"""One of each paper, and one of each kind of job: of all others `overview` plans the first cell, too."""
TABLE1 = "experiment=opt_tree/table1"
LAYER_7B = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
LLAMA_7B = 32000 * 4096 * 2 + 32 * LAYER_7B + 4096
JF68M = 32000 * 768 * 2 + 2 * (4 * 768**2 + 3 * 768 * 3072 + 2 * 768) + 768


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a plan asks the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def printed(*arguments: str) -> str:
    return "\n".join(plan.describe(plan.make(arguments)))


@pytest.mark.long
def test_table_1_is_eight_cells_for_each_of_ten_pairs():
    found = plan.make([TABLE1])
    assert (len(found.of_kind("cells")), len(found.jobs), len(found.pairs)) == (8, 8, 10)
    assert [job.nodes for job in found.jobs] == [0, 25, 50, 60, 25, 25, 50, 60]
    assert [job.depth for job in found.jobs] == [0, 4, 5, 5, 5, 16, 16, 16]  # grown anew: calibration.depths
    assert {job.tokens for job in found.jobs} == {80 * 1960}
    text = "\n".join(plan.describe(found))
    assert "8 cells for each of 10 pairs: 80 cells in all" in text
    assert "80 conversations x 2 turns x 1024 new tokens, 1960 with the prompt: at most 156,800 per arm" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line and not line.startswith(" ")}
    assert "gated" in lines["meta-llama/Llama-2-13b-chat-hf"].split()
    assert "open" in lines["lmsys/vicuna-33b-v1.3"].split()
    assert "accept the licence at https://huggingface.co/<model>" in text
    assert max(map(len, text.splitlines())) <= 120


def test_memory_of_llama_2_7b_by_hand():
    pair = plan.make([TABLE1, "pair=llama2_7b_chat_jf68m"]).pairs[0].memory
    tree = 61 * (1960 + 61) * 2 + 61 * 4096 * 2 + 61 * 32000 * 4
    assert (pair.target, pair.draft, pair.host) == (2 * LLAMA_7B, 2 * JF68M, 0)
    assert pair.caches == (1960 + 1024) * 524_288 + (1960 + 2048) * 2 * 2 * 768 * 2
    assert pair.trees == 2 * tree
    assert pair.gpus == (1, 24)
    assert plan.make([TABLE1, "pair=llama2_7b_chat_jf68m", "runtime=cpu"]).pairs[0].memory.target == 4 * LLAMA_7B

    quantised = plan.make([TABLE1, "pair=llama2_7b_chat_jf68m", "pair.target.bits=4"]).pairs[0].memory.target
    assert quantised == 2 * LLAMA_7B - 32 * (4 * 4096**2 + 3 * 4096 * 11008) * 3 // 2


def test_gpus_leave_a_tenth_to_spare():
    nothing = Memory(target=0, draft=0, caches=0, trees=0, host=0, draft_reads=0)
    sizes = {21.8: (1, 24), 21.9: (1, 40), 43.6: (1, 48), 72.7: (1, 80), 72.8: (2, 80), 145.4: (2, 80), 145.5: (3, 80)}
    assert {size: replace(nothing, target=int(size * 1e9)).gpus for size in sizes} == sizes


def test_an_offloaded_target_is_on_the_host():
    found = plan.make(["experiment=sequoia/table5"])
    memory = found.pairs[0].memory
    assert memory.host + memory.target > 2 * 68.9e9
    assert memory.target < 5e9
    assert [job.nodes for job in found.of_kind("cells")] == [767, 767, 768, 768] * 6
    depths = [
        job.depth for job in found.of_kind("cells")
    ]  # calibration.depths; the paper's; 16 sequences of 48, also merged
    assert depths == [depth for printed in (21, 22, 17, 18, 16, 17) for depth in (32, printed, 48, 48)]
    assert "GB of the host" in "\n".join(plan.describe(found))


def test_cells_share_the_calibrations_that_come_before_them():
    found = plan.make(["experiment=sequoia/table4", "pair=llama2_7b_jf68m"])
    assert [len(found.of_kind(kind)) for kind in plan.KINDS] == [36, 6, 1, 0, 0]
    assert {job.tokens for job in found.of_kind("acceptance")} == {200 * 128}
    assert max(job.nodes for job in found.of_kind("cells")) == 1023  # hardware: bounded by the forwards that are timed
    priced = plan.make(["experiment=sequoia/table4", "pair=llama2_7b_jf68m", "calibration.prices=a100 40gb"])
    assert [len(priced.of_kind(kind)) for kind in plan.KINDS] == [36, 6, 0, 0, 0], "nothing is timed here"
    chosen = ("experiment=opt_tree/table1", "pair=llama2_7b_jf68m", "drafter=opt_tree", "drafter.delta=hardware")
    assert len(plan.make([*chosen]).of_kind("latency")) == 1
    assert not plan.make([*chosen, "calibration.prices=a100 40gb"]).of_kind("latency")
    fig3 = plan.make(["experiment=sequoia/fig3"])
    assert [len(fig3.of_kind(kind)) for kind in plan.KINDS] == [0, 12, 0, 0, 0]
    fig4 = plan.make(["experiment=sequoia/fig4"])
    assert [len(fig4.of_kind(kind)) for kind in plan.KINDS] == [0, 0, 1, 0, 0]
    assert len(fig4.jobs[0].forwards) == 12 * 110


FORK = ("experiment=smoke", "drafter=dyn_mcsd", "verifier=by_root", "decoding=t1")


def test_cells_share_the_decision_models_that_are_trained_before_them():
    found = plan.make([*FORK, "drafter.decision=null,hidden,topk", "limit=null"])
    assert [len(found.of_kind(kind)) for kind in plan.KINDS] == [3, 0, 0, 0, 1]
    (job,) = found.of_kind("decision")
    assert (job.tokens, job.nodes, job.depth, job.temperature) == (20 * 32, 20, 1, 1.0)  # half of 40 bundled prompts
    assert "3 cells, 1 decision-model training for 1 pair" in "\n".join(plan.describe(found))
    few = plan.make([*FORK, "measure=decision", "limit=6", "calibration.decision.width=4"])
    assert [(job.measure, job.tokens, job.nodes) for job in few.jobs] == [("decision", 6 * 32, 8)]
    assert "trees;" in printed(*FORK, "measure=decision")


@pytest.mark.parametrize(
    ("drafter", "nodes", "depth"),
    [
        (["drafter=ti_mcsd"], 82, 4),
        (["drafter=ti_mcsd_w1"], 41, 4),
        (["drafter=dyn_mcsd"], 96, 5),
        (["drafter=dyn_mcsd", "drafter.init=draft", "drafter.width=3"], 15, 5),
        (["drafter=mcsd"], 44, 4),
        (["drafter=sd"], 4, 4),
    ],
)
def test_trees_of_improved_mcsd_by_hand(drafter, nodes, depth):
    (job,) = plan.make([*FORK, *drafter]).of_kind("cells")
    assert (job.nodes, job.depth) == (nodes, depth)


def test_a_tree_without_a_draft_model_and_a_size_counts_as_the_largest_calibrated():
    lookup = {"method": "lookup", "_target_": "specdec_core.drafters.PromptLookup"}
    calibration = {"latency": {"num_tokens": [1, 65]}, "depths": 16}
    assert [size(lookup | own, calibration) for own in ({}, {"n": 7})] == [(64, 0), (7, 0)]


def test_the_command_line_replaces_what_is_swept():
    found = plan.make(["experiment=opt_tree/fig8", "pair=tiny", "drafter.delta=0.2,0.3", "dataset=mini", "limit=3"])
    assert found.axes == {"drafter.delta": ["0.2", "0.3"]}
    assert len(found.jobs) == 2  # alike for the plan, yet two cells
    assert {job.prompts for job in found.jobs} == {"3 conversations x 2 turns x 64 new tokens: at most 384 per arm"}


@pytest.mark.parametrize(
    "experiment", [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in EXPERIMENTS]
)
def test_every_experiment_plans(experiment, monkeypatch):
    def ends(arguments):  # the cells between are alike, and composing is slow
        pairs, batch = sweep(arguments)
        return pairs, [batch[0], batch[-1]]

    monkeypatch.setattr(planning, "sweep", ends)
    listed = plan.make([f"experiment={experiment}", "limit=2"])
    lines = list(plan.describe(listed))
    assert lines[0].startswith(listed.name)
    shown = [line.partition(" ")[0] for line in "\n".join(lines).splitlines()]
    if {job.measure for job in listed.jobs} == {"attention"}:
        assert "no model is loaded" in lines[-1]
        return
    for pair in listed.pairs:
        assert shown.count(pair.spec.name) == 2  # memory, hours
    for spec in (spec for pair in listed.pairs for spec in (pair.spec.target, pair.spec.draft) if spec):
        line = next(line for line in "\n".join(lines).splitlines() if line.startswith(f"{spec.id} "))
        said = line.removesuffix(spec.licence or "see its page").split()
        assert said[-1] == ("gated" if spec.gated else "open")


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("experiment=opt_tree/tabel1", 'did you mean "opt_tree/table1"'),
        ("experiment=smoke,opt_tree/fig3", "one experiment"),
        ("pair=tinny", 'did you mean "tiny"'),
        ("drafter.nodes=3", "nodes"),
        ("limit=0", "at least one"),
        ("measure=latenzy", 'did you mean "latency"'),
    ],
)
def test_what_cannot_be_planned_is_a_sentence(argument, sentence, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["plan", "experiment=smoke", argument])
    with pytest.raises(SystemExit) as ended:
        plan.main()
    assert sentence in str(ended.value)
    assert capsys.readouterr().out == ""


def test_hours_from_kept_forward_times(tmp_path):
    rows = [
        LatencyRow(
            run_id="a",
            pair="llama2_7b_chat_jf68m",
            role=role,
            model_id={"target": "meta-llama/Llama-2-7b-chat-hf", "draft": "JackFram/llama-68m"}[role],
            device_name="A100",
            dtype="bfloat16",
            num_tokens=tokens,
            num_prefix=128,
            repeat=0,
            forward_s=time,
        )
        for role, tokens, time in [("target", 1, 0.02), ("target", 32, 0.03), ("target", 64, 0.04), ("draft", 1, 0.001)]
    ]
    Store(tmp_path, "calibration").write("latency", "a", rows)
    found = plan.make([TABLE1, "pair=llama2_7b_chat_jf68m", f"results_dir={tmp_path}"])
    pair = found.pairs[0]
    (times,) = measured_times(tmp_path, pair.spec)
    halved = replace(pair.spec, target=replace(pair.spec.target, bits=8))
    assert measured_times(tmp_path, halved) == [], "times of other weights"
    assert (times.origin, times.target(26), times.target(512)) == ("A100, bfloat16", 0.03, 0.04)
    mals = [mal_of("opt_tree/table1", pair.labels, job) for job in found.jobs]
    assert mals == [1.0, 2.12, 2.12, 2.12, 2.47, 2.58, 2.58, 2.58]
    opt_tree = seconds(found.jobs[5], times, 2.58)
    assert opt_tree == pytest.approx(156_800 * (0.03 + 16 * 0.001) / 2.58), "two cells decode the baseline of all"
    alone = replace(found.jobs[5], baseline=found.jobs[0].baseline)
    assert seconds(alone, times, 2.58) == pytest.approx(opt_tree + 156_800 * 0.02)
    assert seconds(found.jobs[0], times, 1.0) == pytest.approx(156_800 * 2 * 0.02)
    hours = sum(seconds(job, times, mal) for job, mal in zip(found.jobs, mals, strict=True)) / 3600
    assert f" {hours:.2f} (A100, bfloat16)" in "\n".join(plan.describe(found))
    none = "no hours: nothing measured here; `specdec latency pair=llama2_7b_chat_eagle`"
    assert none in printed(TABLE1, "pair=llama2_7b_chat_eagle", "runtime=cpu", f"results_dir={tmp_path}")


NOWHERE = Machine(device_name="Test CPU", dtype="float32", gpu=False)


@pytest.mark.long
def test_hours_without_a_gpu_are_measured_here_or_there_are_none(tmp_path):
    """Runs of the pair on this machine, whatever experiment they were for, say how long its forwards take."""
    cell = ("limit=1", "dataset=mini", "decoding.max_new_tokens=6", "runtime.dtype=float32", f"results_dir={tmp_path}")
    before = plan.make(["experiment=smoke", *cell, "runtime=cpu"])
    assert planning.times_here(before, before.pairs[0]) is None
    assert "no hours: nothing measured here" in "\n".join(plan.describe(before))
    plan_times._runs.cache_clear()
    plan_times.of_runs.cache_clear()
    assert execute(tmp_path, *cell[:-1], "drafter=chain4", "name=elsewhere/own") == "ok"
    found = plan.make(["experiment=smoke", *cell, "runtime=cpu"])
    (pair,) = found.pairs
    here = planning.times_here(found, pair)
    assert here.origin == f"runs on {found.machine.device_name}, float32"
    results = load(tmp_path, "elsewhere/own")
    steps, prompts = results.steps, results.prompts.query("arm == 'autoregressive'")
    assert here.target(1) == pytest.approx((prompts["decode_s"] / prompts["num_steps"]).median())
    rest = steps[["tree_s", "score_s", "judge_s", "commit_s"]].sum(axis=1)
    assert here.target(5) == pytest.approx(rest.median())
    assert here.draft(1) == pytest.approx(steps["draft_s"].sum() / steps["draft_forwards"].sum())
    assert f"{planning.number(planning.hours(found, pair, here))} ({here.origin})" in "\n".join(plan.describe(found))
    assert of_machine(tmp_path, pair.spec, pair.memory, NOWHERE) is None, "another machine's runs"
    other = replace(pair.spec, name="other")
    assert of_machine(tmp_path, other, pair.memory, found.machine) is None, "another pair's runs"


H100 = Machine(device_name="NVIDIA H100 80GB HBM3", dtype="bfloat16", gpu=True)
COMPILED = replace(H100, graphs="compile")
EAGLE_7B = 2 * 4096**2 + 4096 + LAYER_7B - 4096 + 32000 * 4096
"""Its fc with a bias, a layer without input norm, and its embedding."""


@pytest.mark.parametrize(
    ("pair", "machine", "target", "draft"),
    [
        ("llama2_7b_chat_jf68m", H100, (20 + 40 * 32) * 5e-6, (20 + 40 * 2) * 5e-6),
        ("llama2_7b_chat_jf68m", COMPILED, 2 * LLAMA_7B / 3.35e12, 2 * JF68M / 3.35e12),
        ("llama2_7b_chat_eagle", H100, 6.5e-3, (7 + 40) * 5e-6),
        ("llama2_7b_chat_eagle", COMPILED, 2 * LLAMA_7B / 3.35e12, 2 * EAGLE_7B / 3.35e12),
        ("llama2_7b_chat_jf68m", replace(H100, device_name="NVIDIA A100-SXM4-40GB"), 2 * LLAMA_7B / 1.555e12, 0.5e-3),
        ("llama2_7b_chat_jf68m", replace(H100, device_name="NVIDIA GeForce RTX 4090"), 2 * LLAMA_7B / 1.008e12, 0.5e-3),
        ("tiny", H100, (20 + 40 * 6) * 5e-6, (20 + 40 * 1) * 5e-6),
        ("tiny_self", H100, (20 + 40 * 6) * 5e-6, (20 + 40 * 4) * 5e-6),
        ("tiny_medusa", H100, (20 + 40 * 6) * 5e-6, 17 * 5e-6),
    ],
)
def test_an_estimate_of_a_forward_by_hand(pair, machine, target, draft, tmp_path):
    """Reading 13.48 GB takes an H100 4.0 ms, launching 1,300 kernels 6.5 ms; a 68M draft 0.04 and 0.5 ms."""
    found = plan.make([TABLE1, f"pair={pair}", f"results_dir={tmp_path}", "drafter=chain4"])
    times = planning.times_here(replace(found, machine=machine), found.pairs[0])
    assert times.estimate
    assert (times.target(1), times.draft(1)) == (pytest.approx(target), pytest.approx(draft))
    assert (times.target(64), times.draft(64)) == (times.target(1), times.draft(1))


@pytest.mark.parametrize("pair", ["tiny", "tiny_eagle3", "llama2_7b_chat_jf68m", "llama2_70b_llama2_7b_offload"])
@pytest.mark.parametrize("card", ["NVIDIA B200", "NVIDIA H100 PCIe", "NVIDIA L4"])
def test_no_estimate_is_shorter_than_reading_the_weights(pair, card, tmp_path):
    found = plan.make([TABLE1, f"pair={pair}", f"results_dir={tmp_path}", "drafter=chain4"])
    memory, speed = found.pairs[0].memory, parse(card).card.bytes_per_s
    reading = memory.target / speed + memory.host / 25e9, memory.draft_reads / speed
    of_graphs = {}
    for graphs in ("eager", "compile"):
        machine = replace(H100, device_name=card, graphs=graphs)
        times = planning.times_here(replace(found, machine=machine), found.pairs[0])
        of_graphs[graphs] = times.target(1), times.draft(1)
    assert of_graphs["compile"] == pytest.approx(reading)
    assert all(eager >= read for eager, read in zip(of_graphs["eager"], reading, strict=True))


def test_an_estimate_is_printed_as_one_and_only_for_known_gpus(tmp_path):
    found = plan.make([TABLE1, "pair=llama2_7b_chat_jf68m", f"results_dir={tmp_path}"])
    for machine in (H100, COMPILED):
        here = replace(found, machine=machine)
        times = planning.times_here(here, here.pairs[0])
        hours = planning.number(planning.hours(here, here.pairs[0], times))
        assert f"{hours} ({times.origin})" in "\n".join(plan.describe(here))
    for elsewhere in (NOWHERE, replace(H100, device_name="a card of tomorrow")):
        assert planning.times_here(replace(found, machine=elsewhere), found.pairs[0]) is None


@pytest.mark.few(2)
@pytest.mark.parametrize("experiment", ["opt_tree/table1", "smoke"])
@pytest.mark.parametrize("name", ["papers", "own"])
def test_make_plan_takes_an_experiments_own_pairs(name, experiment, monkeypatch, capsys):
    """What `make plan PAIR=papers` runs, as README says it."""
    command = subprocess.run(
        [
            "make",
            "--no-print-directory",
            "-n",
            "-o",
            "setup",
            "plan",
            f"PAIR={name}",
            f"TABLE={experiment}",
            "LIMIT=1",
        ],
        cwd=CONF.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    arguments = shlex.split(command.replace("\\\n", " "))
    monkeypatch.setattr(sys, "argv", arguments[arguments.index("specdec_trees.plan") :])
    assert f"pair={name}" in sys.argv
    plan.main()
    own = plan.make([f"experiment={experiment}", "limit=1"])
    assert capsys.readouterr().out == "\n".join([*plan.describe(own), ""])
    assert len(own.pairs) == {"opt_tree/table1": 10, "smoke": 1}[experiment]


def test_a_stand_in_has_no_published_mal():
    found = plan.make([TABLE1, "pair=tiny"])
    assert {mal_of("opt_tree/table1", found.pairs[0].labels, job) for job in found.jobs} == {1.0}
    assert {mal_of("smoke", {}, job) for job in found.jobs} == {1.0}


def test_shapes_come_from_a_folder_or_the_table_or_not_at_all(tmp_path):
    tiny = plan.make(["experiment=smoke"]).pairs[0].spec
    assert shape_of(tiny.target).hidden_size == 256
    with pytest.raises(LoadError, match=r"no readable config.json of nobody/nothing"):
        shape_of(ModelSpec(id="nobody/nothing"))
    with pytest.raises(LoadError, match=r"does not hold a loadable model"):
        shape_of(ModelSpec(id=str(tmp_path)))


def test_a_draft_that_skips_the_targets_layers_adds_no_weights():
    target = ModelSpec(id="meta-llama/Llama-2-7b-hf")
    jobs = plan.make([TABLE1, "pair=tiny"]).jobs
    alone = PairSpec(name="alone", target=target, draft=None, template="plain")
    skipping = replace(alone, draft=ModelSpec(id=target.id, kind="layer_skip", skipped_layers=(1, 3)))
    first, second = (memory_of(pair, jobs, torch.bfloat16) for pair in (alone, skipping))
    assert (first.draft, second.draft, second.draft_reads) == (0, 0, 2 * (LLAMA_7B - 2 * LAYER_7B))
    assert second.caches == first.caches
    parts = replace(alone, draft=replace(skipping.draft, skipped_attention=(3, 5), skipped_mlp=(7,)))
    attention, mlp = 4 * 4096**2 + 4096, 3 * 4096 * 11008 + 4096
    reads = memory_of(parts, jobs, torch.bfloat16).draft_reads
    assert reads == 2 * (LLAMA_7B - 2 * LAYER_7B - attention - mlp)  # layer 3 is skipped whole


def test_token_graphs_are_as_large_as_what_is_verified_of_them():
    found = plan.make(["experiment=gsd/table2", "pair=tiny", "dataset=mini", "limit=2"])
    sizes = {"ssd": (10, 10), "ssd_iid": (10, 10), "tsd": (100, 10), "gsd": (100, 10)}
    assert {job.method: (job.nodes, job.depth) for job in found.jobs} == sizes
    assert {job.passes for job in found.jobs} == {2}, "variation is recorded in a pass of its own"
    found = plan.make(["experiment=gsd/table2", "pair=tiny", "dataset=mini", "limit=2", "drafter=ssd_adaptive"])
    assert {(job.nodes, job.depth) for job in found.jobs} == {(12, 12)}


@pytest.mark.long
def test_without_an_experiment_it_is_a_line_for_every_artifact(monkeypatch, tmp_path):
    def ends(arguments):
        pairs, batch = sweep(arguments)
        return pairs[:1], batch[:1]

    monkeypatch.setattr(planning, "sweep", ends)
    header, *lines, total, note = overview([f"results_dir={tmp_path}", "pair=papers", "limit=1", "runtime=cpu"])
    assert [line.split()[0] for line in lines] == list(ARTIFACTS)
    cells = [int(line.split()[2]) for line in lines]
    assert set(cells) == {0, 1}
    assert int(total.split()[1]) == sum(cells)
    assert all(line.endswith("not begun") for line in lines)
    assert {line.split()[5] for line in lines} == {"–"}, "nothing was measured, and there is no GPU"
    assert max(map(len, (header, *note.splitlines()))) <= 120
