"""The command line: every drafter on the embedded pair, what is run again and what is not, and what is refused."""

import inspect
from pathlib import Path

import pytest
from cells import QUIET, command, config, execute, finish, stamps, start
from composed import composed, names
from hydra.errors import ConfigCompositionException
from hydra.utils import get_object

from specdec_core.errors import LoadError
from specdec_core.openmp import VARIABLES
from specdec_trees.configs.cells import cell_of
from specdec_trees.measure import pairs
from specdec_trees.measure.cell import Runtime
from specdec_trees.results.rows import AUTOREGRESSIVE, METHOD
from specdec_trees.results.store import StoreError, load
from specdec_trees.run import check_choices

FROM_TARGET = {"ti_mcsd": False, "ti_mcsd_w1": True, "dyn_mcsd": False}
"""Drafters that start from the target's distribution, which have rules of their own, and whether these are lossless."""
SAME = {"gsd_tau2", "sd", "mcsd", "eagle25_drawn", "sized_spec_infer"}
"""In greedy decoding, without an experiment's own sizes, cells of other drafters, such as gsd and chain4."""
TRAINED = {"dyn_mcsd_hidden", "dyn_mcsd_topk"}
"""Their decision models are trained first (`tests/unit/bench/test_decision.py`)."""
OF_A_TABLE = {"sequoia_printed"}
"""Its tree is what the table of an experiment prints."""
DRAFTERS = sorted({*names("drafter")} - SAME - OF_A_TABLE - TRAINED - {*FROM_TARGET})
VERIFIERS = sorted(name for name in names("verifier") if not name.startswith("by_"))
DECODINGS = names("decoding")
ONCE = ("runtime.warmup_conversations=0", "calibration.latency.warmup=1", "calibration.latency.repeats=2")
SHORT = ("pair=tiny", "dataset=mini", "limit=1", "decoding.max_new_tokens=12", *ONCE)
CHEAP = (*SHORT[:3], "decoding.max_new_tokens=3", *ONCE)


@pytest.fixture(scope="module")
def drafters(long_form: bool) -> list[str]:
    """Every drafter; in the short form one of every method and way of drawing."""
    configs = {name: composed(f"drafter={name}").drafter for name in reversed(DRAFTERS)}
    kinds = {(drafter.method, drafter.get("draws")): name for name, drafter in configs.items()}
    return DRAFTERS if long_form else sorted(kinds.values())


def _has_draft(name: str) -> bool:
    """Whether it needs a draft model, which gives edges their probabilities."""
    return "draft" in inspect.signature(get_object(composed(f"drafter={name}").drafter["_target_"])).parameters


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, drafters: list[str]) -> Path:
    """The results of one sweep over them, by a process of its own."""
    folder = tmp_path_factory.mktemp("sweep")
    printed = finish(start(folder, "-m", *SHORT, f"drafter={','.join(drafters)}", "runtime.device=cpu"))
    assert "ERROR" not in printed
    assert "1/1" in printed, "a progress bar"
    return folder / "results"


def test_every_drafter_runs_and_greedy_decoding_is_lossless(swept, drafters):
    results = load(swept, "default")
    runs = results.runs.set_index("drafter")
    assert sorted(runs.index) == drafters
    assert set(runs["status"]) == {"ok"}
    assert (runs["identical"] == 1).all()
    assert runs["lossless"].all()
    assert set(runs["draws"]) == {"none", "topk", "iid", "without_replacement", "greedy_one"}
    assert runs.index[runs["draws"] == "none"].tolist() == ["autoregressive"]
    absent = set(runs.index[runs["expected_acceptance"].isna()])
    assert absent == {name for name in drafters if not _has_draft(name)} - {"autoregressive"}, "no probabilities"
    assert (runs["mal"] >= 1).all()
    assert (runs["speedup"] > 0).all()
    assert runs.loc["autoregressive", "mal"] == 1
    assert runs["prompts_sha256"].nunique() == 1
    outputs = results.prompts.groupby("turn")["output_sha256"].nunique()
    assert outputs.to_dict() == {0: 1, 1: 1}, "both arms of all drafters say the same"
    assert len(results.prompts) == 4 * len(drafters)
    assert (results.prompts["num_new_tokens"] <= 12).all()
    assert (swept.parent / "outputs").is_dir(), "Hydra's logs are not among the results"
    kinds = {path.split("/")[1] for path in stamps(swept) if path.startswith("default/")}
    assert kinds == {"runs", "prompts", "steps", "acceptance", "growth", "latency"}
    assert {path.split("/")[0] for path in stamps(swept)} == {"default", "calibration"}


@pytest.mark.parametrize("decoding", ["greedy", "t1"])
@pytest.mark.parametrize("drafter", FROM_TARGET)
def test_trees_that_start_from_the_target_run_by_their_own_rules(drafter, decoding, tmp_path):
    """Every token of theirs belongs to a step, and rows say what is lossless."""
    assert execute(tmp_path, *SHORT, f"drafter={drafter}", "verifier=by_root", f"decoding={decoding}") == "ok"
    results = load(tmp_path, "default")
    run = results.runs.iloc[0]
    assert run["lossless"] == FROM_TARGET[drafter]
    assert run["draws"].startswith("target_" if FROM_TARGET[drafter] else "targets_")
    if FROM_TARGET[drafter] and decoding == "greedy":
        assert run["identical"] == 1
    method = results.prompts[results.prompts["arm"] == METHOD]
    assert results.steps["kept"].sum() == method["num_new_tokens"].sum() == method["num_decoded_tokens"].sum()


@pytest.mark.parametrize("drafter", ["prompt_lookup", "prompt_lookup_tree", "suffix_decoding"])
def test_a_lossy_run_without_a_draft_is_not_recorded_as_lossless(drafter, tmp_path):
    """Refused by default, and where it was asked for: the rule compares p with q, and there is no q."""
    lossy = (*SHORT, f"drafter={drafter}", "verifier=gsd_nondeterministic", "decoding=t06")
    assert execute(tmp_path / "refused", *lossy, "verifier.allow_lossy=false") == "failed"
    assert execute(tmp_path / "asked", *lossy) == "failed"
    for folder, sentence in (
        ("refused", "does not keep the target's distribution for topk"),
        ("asked", "this drafter has none"),
    ):
        run = load(tmp_path / folder, "default").runs.iloc[0]
        assert (run["status"], run["lossless"]) == ("failed", False)
        assert sentence in run["error"]
        assert "Traceback" not in run["error"]


@pytest.mark.parametrize("decoding", ["greedy", "t06"])
def test_a_drafter_without_a_draft_needs_none_of_its_pair(decoding, tmp_path):
    chosen = (*SHORT, "drafter=prompt_lookup", f"decoding={decoding}", "pair.draft=null")
    assert execute(tmp_path, *chosen, "record_nodes=true", "record_masks=true") == "ok"
    results = load(tmp_path, "default")
    assert results.runs["lossless"].all()
    assert results.runs["draft_id"].isna().all()
    assert results.runs["expected_acceptance"].isna().all()
    assert results.steps["expected_acceptance"].isna().all()
    assert results.steps["num_drafted"].max() == 10
    assert set(results.steps["draft_forwards"]) == {0}
    assert results.nodes["edge_prob"].isna().all()
    assert "heap" not in set(results.masks["order"])


def test_steps_sum_to_prompts(swept):
    results = load(swept, "default")
    steps = results.steps.groupby(["run_id", "prompt_id", "turn"])["kept"].agg(["sum", "size"])
    method = results.prompts[results.prompts["arm"] == METHOD].set_index(["run_id", "prompt_id", "turn"])
    joined = method.join(steps)
    assert (joined["sum"] == joined["num_new_tokens"] - 1).all()
    assert (joined["size"] == joined["num_steps"]).all()


def test_finished_cells_are_not_run_again(drafters, swept):
    """Also by another process, with other paths, threads and clocks."""
    before = stamps(swept)
    cells = [(*SHORT, f"drafter={drafter}", *retry) for drafter in drafters for retry in ((), ("retry=failed",))]
    assert {cell: status for cell in cells if (status := execute(swept, *cell)) != "skipped"} == {}
    assert stamps(swept) == before


@pytest.mark.long
@pytest.mark.parametrize("drafter", ["branching_4_2_2_1", "branching_4_2_2_1_iid", "branching_4_2_2_1_wor"])
@pytest.mark.parametrize(
    "decoding", [pytest.param(name, marks=() if name in ("greedy", "t07") else pytest.mark.long) for name in DECODINGS]
)
def test_every_decoding_and_rule_with_every_way_of_drawing(drafter, decoding, tmp_path):
    """Ok where the pair is declared lossless, refused in a sentence elsewhere; rows of what is to be lossy say so."""
    greedy = decoding == "greedy"
    expected, lossy = {}, set()
    for verifier in VERIFIERS:
        chosen = (f"drafter={drafter}", f"verifier={verifier}", f"decoding={decoding}")
        planned = cell_of(config(*chosen))
        declared = planned.drafter_params["draws"] in planned.rule.lossless_for
        from_target = getattr(planned.rule, "virtual_root", False)
        lossy |= {verifier} if planned.allow_lossy and not from_target else set()
        kept = greedy or (declared and verifier not in ("greedy", "chain"))
        expected[verifier] = "ok" if (kept or planned.allow_lossy) and not from_target else "failed"
        assert execute(tmp_path, *CHEAP, *chosen, "runtime.warmup_conversations=1") == expected[verifier], verifier
    runs = load(tmp_path, "default").runs.set_index("verifier")
    assert runs["status"].to_dict() == expected
    ok = runs[runs["status"] == "ok"]
    assert set(ok.index[~ok["lossless"]]) == lossy
    assert set(ok["identical"].isna()) == {not greedy}
    assert runs["error"].drop(ok.index).str.contains("verifier=target_sample|draft a chain|verifier=by_root").all()


def test_a_run_says_how_it_begins_and_what_the_machine_did_meanwhile(tmp_path, monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert execute(tmp_path, *SHORT, "drafter=chain4") == "ok"
    found = load(tmp_path, "default")
    run, prompts = found.runs.iloc[0], found.prompts
    first = prompts[(prompts["arm"] == AUTOREGRESSIVE) & (prompts["turn"] == 0)].iloc[0]
    text = pairs.loaded(cell_of(config(*SHORT)).pair, Runtime(device="cpu")).tokenizer.decode(first["output_ids"])
    assert run["excerpt"] == " ".join(text.split())
    assert (prompts["decode_s"] <= prompts["wall_s"] + 1e-6).all()
    assert (run["other_load"] >= 0) == Path("/proc/stat").exists()
    assert run["wait_policy"] == "GOMP_SPINCOUNT=7"


def test_force_runs_a_finished_cell_again_and_doubles_nothing(tmp_path):
    chosen = (*CHEAP, "drafter=chain4")
    assert execute(tmp_path, *chosen) == "ok"
    first, before = load(tmp_path, "default"), stamps(tmp_path)
    assert execute(tmp_path, *chosen, "force=true") == "ok"
    again, after = load(tmp_path, "default"), stamps(tmp_path)
    assert before.keys() == after.keys()
    assert all(before[path] < after[path] for path in before)
    assert again.runs["created_utc"][0] > first.runs["created_utc"][0]
    assert [len(getattr(again, table)) for table in ("runs", "prompts")] == [1, 4]
    assert list(again.prompts["output_sha256"]) == list(first.prompts["output_sha256"])


def test_a_cell_is_run_again_for_what_it_lacks(tmp_path):
    chosen = (*CHEAP, "drafter=chain4")
    assert execute(tmp_path, *chosen, "runtime.baseline=false") == "ok"
    assert len(load(tmp_path, "default").prompts) == 2
    assert execute(tmp_path, *chosen) == "ok"
    assert execute(tmp_path, *chosen) == "skipped"
    assert execute(tmp_path, *chosen, "record_nodes=true") == "ok"
    assert execute(tmp_path, *chosen, "record_nodes=true") == "skipped"
    results = load(tmp_path, "default")
    assert len(results.nodes) == results.steps["num_drafted"].sum() > 0


@pytest.mark.long
def test_retry_runs_only_what_failed(tmp_path, monkeypatch):
    good, bad, new = ((*CHEAP, "drafter=autoregressive", f"seed={seed}") for seed in (0, 1, 2))
    assert execute(tmp_path, *good) == "ok"
    with monkeypatch.context() as patched:
        patched.setattr(pairs, "_loaded", {})
        patched.setattr(pairs, "load_pair", refuse)
        assert execute(tmp_path, *bad) == "failed"
    row = load(tmp_path, "default").runs.set_index("seed").loc[1]
    assert (row["status"], row["error"], row["num_conversations"]) == ("failed", "weights are elsewhere", 0)
    before = stamps(tmp_path)
    assert [execute(tmp_path, *cell, "retry=failed") for cell in (good, bad, new)] == ["skipped", "ok", "skipped"]
    after = stamps(tmp_path)
    unchanged = {path for path in before if before[path] == after[path]}
    assert {path.split("=")[1] for path in unchanged} == {f"{cell_of(config(*good)).run_id}.parquet"}
    assert sorted(load(tmp_path, "default").runs["status"]) == ["ok", "ok"]
    with pytest.raises(ValueError, match="retry is null or failed, not all"):
        execute(tmp_path, *good, "retry=all")


def refuse(*arguments: object, **options: object) -> None:
    raise LoadError("weights are elsewhere")


@pytest.mark.long
def test_a_failed_cell_does_not_replace_a_finished_one(tmp_path, monkeypatch):
    chosen = (*CHEAP, "drafter=chain4")
    assert execute(tmp_path, *chosen) == "ok"
    before = stamps(tmp_path)
    monkeypatch.setattr(pairs, "_loaded", {})
    monkeypatch.setattr(pairs, "load_pair", refuse)
    assert execute(tmp_path, *chosen, "force=true") == "failed"
    assert stamps(tmp_path) == before


@pytest.mark.long
def test_shards_cover_each_cell_once(tmp_path):
    """Two of them job by job; another by the command line, whose numbers are Hydra's own."""
    seeds = range(5)
    runs = {seed: [] for seed in seeds}
    for part in (0, 2):
        for job, seed in enumerate(seeds):
            status = execute(
                tmp_path / "r", *CHEAP, "drafter=autoregressive", f"seed={seed}", f"shard={part}/3", job=job
            )
            runs[seed] += [part] if status == "ok" else []
    sweep = ("-m", *QUIET, *CHEAP, "drafter=autoregressive", "seed=0,1,2,3,4", "shard=1/3", "results_dir=r")
    assert command(tmp_path, *sweep) is None
    assert runs == {0: [0], 1: [], 2: [2], 3: [0], 4: []}
    found = load(tmp_path / "r", "default").runs
    assert sorted(found["seed"]) == list(seeds)
    assert set(found["status"]) == {"ok"}
    for shard in ("3/3", "1", "-1/3", "a/b", "0/0"):
        with pytest.raises(ValueError, match="shard is i/n"):
            execute(tmp_path / "r", *CHEAP, f"shard={shard}")


def test_what_an_experiment_leaves_out_of_a_pair_is_run_when_asked_for_alone(tmp_path):
    cell = (tmp_path / "r", *CHEAP, "drafter=autoregressive", "+only.tiny={drafter: [gsd]}")
    assert execute(*cell) == "skipped"
    assert not (tmp_path / "r").exists()
    assert execute(*cell, job=None) == "ok"


@pytest.mark.long
def test_a_sweep_with_a_refused_job_runs_the_others_and_ends_with_status_1(tmp_path):
    process = start(tmp_path, "-m", *CHEAP, "drafter=autoregressive", "decoding.temperature=-1,0", "results_dir=r")
    printed, _ = process.communicate(timeout=400)
    assert process.returncode == 1
    assert "temperature must be 0 (greedy) or positive, not -1" in printed
    assert load(tmp_path / "r", "default").runs["status"].tolist() == ["ok"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("drafter=opt_tre", 'unknown drafter "opt_tre"; did you mean "opt_tree"'),
        ("drafter=binary,opt_tre", 'unknown drafter "opt_tre"; did you mean "opt_tree"'),
        ("drafter=null", 'unknown drafter "null"; there are: autoregressive, '),
        ("pair=tinny", 'unknown pair "tinny"; did you mean "tiny" or "tiny_self" or "tiny_eagle"?'),
        ("dataset=mtbench", 'unknown dataset "mtbench"; did you mean "mt_bench"'),
        ("verifier=gredy", 'unknown verifier "gredy"; did you mean "greedy"'),
        ("experiment=opt_tree/table11", 'unknown experiment "opt_tree/table11"; did you mean "opt_tree/table1"'),
    ],
)
def test_unknown_names_suggest_the_nearest(wrong, sentence):
    with pytest.raises(SystemExit) as stop:
        check_choices(["-m", wrong, "limit=1"])
    assert str(stop.value.code).startswith(sentence)
    assert "\n" not in stop.value.code
    check_choices(["-m", "drafter=opt_tree,binary", "experiment=null", "pair=tiny", "limit=1", "+new=3"])


def test_the_command_ends_with_the_sentence_and_an_exit_status(tmp_path, capsys):
    """Wrong names, keys and values: they fail in different places."""
    assert command(tmp_path, *QUIET, *CHEAP, "drafter=opt_tre").endswith("?")
    found = command(tmp_path, *QUIET, *CHEAP, "drafter.nn=3")
    assert found.startswith('unknown option "drafter.nn"; did you mean "drafter.n"')
    wrong = {
        "drafter.n=0": "OPT-Tree's budget n must be at least 1 node, not 0",
        "results_dir=/proc/nope": "set results_dir to another folder",
    }
    for argument, sentence in wrong.items():
        assert command(tmp_path, *QUIET, *CHEAP, argument) == 1
        printed = "".join(capsys.readouterr())
        assert sentence in printed
        assert "Traceback" not in printed
    (row,) = load(tmp_path / "results", "default").runs.itertuples()
    assert (row.status, row.error) == ("failed", "OPT-Tree's budget n must be at least 1 node, not 0")


def test_a_cell_run_alone_ends_with_what_it_found_and_where_it_is(tmp_path, capsys):
    """The second time too, when it is there already; the jobs of a sweep say nothing of the kind."""
    cell = (*QUIET, *CHEAP, "drafter=chain4", "limit=2")
    for _ in range(2):
        assert command(tmp_path, *cell) is None
        *_, name, mal, speedup, outputs, files = capsys.readouterr().out.splitlines()
        (row,) = load(tmp_path / "results", "default").runs.itertuples()
        assert name.startswith("chain of 4 with the pair tiny, judged by target_sample at temperature 0, 2 conv")
        assert mal.startswith(f"  MAL        {row.mal:.2f} (")
        assert speedup.startswith(f"  speedup    {row.speedup:.2f} (")
        assert outputs.split()[:3] == ["outputs", "All", "4"]
        path = files.removeprefix("Files: ").partition(";")[0].replace("{runs,prompts,steps}", "runs")
        assert (tmp_path / path).is_file()
        assert files.endswith("`make report` shows them.")
    assert command(tmp_path, *cell, "results_dir=other") is None
    assert capsys.readouterr().out.endswith("`make report RESULTS=other` shows them.\n")
    assert command(tmp_path, "-m", *cell) is None
    assert "MAL" not in capsys.readouterr().out


def test_keys_and_folders_that_do_not_fit(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be written to .*file.*set results_dir"):
        execute(tmp_path / "file", *CHEAP)
    with pytest.raises(ConfigCompositionException, match=r"drafter\.nn"):
        execute(tmp_path, *CHEAP, "drafter.nn=3")
    with pytest.raises(ValueError, match=r'unknown option "drafter\.nn"; did you mean "drafter\.n"'):
        execute(tmp_path, *CHEAP, "+drafter.nn=3")
    with pytest.raises(ValueError, match="at least one"):
        execute(tmp_path, *CHEAP, "decoding.max_new_tokens=0")


def test_a_row_says_that_its_weights_were_packed(tmp_path):
    asked = ("pair=tiny", "dataset=mini", "limit=1", "decoding.max_new_tokens=6", "drafter=eagle25")
    rows = []
    for how in ("eager", "packed"):
        assert execute(tmp_path / how, *asked, f"runtime.graphs={how}") == "ok"
        (row,) = load(tmp_path / how, "default").runs.to_dict("records")
        assert (row["graphs"], row["identical"]) == (how, 1.0)
        rows.append(row["run_id"])
    assert rows[0] != rows[1], "its times are no others'"
    assert execute(tmp_path / "packed", *asked, "runtime.graphs=packed", "runtime.replay=true", "limit=2") == "ok"
    runs, prompts = (getattr(load(tmp_path / "packed", "default"), name) for name in ("runs", "prompts"))
    assert (runs["graphs"].tolist(), runs["run_id"].tolist()) == (["packed"], [rows[1]])
    assert prompts["prompt_id"].nunique() == 2, "a replay goes with what was decoded so"
