"""Sweeps as jobs: through submitit on this machine, and what would be asked of Slurm."""

from pathlib import Path

import pytest
from cells import execute, finish, stamps, start
from composed import of_hydra
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from specdec_trees.results.store import load

submitit = pytest.importorskip("submitit")
pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*is validated against ConfigStore schema")

CELLS = ("pair=tiny", "dataset=mini", "limit=1", "decoding.max_new_tokens=6", "drafter=chain4")
SWEEP = ("-m", *CELLS, "seed=0,1", "runtime.progress=false")


@pytest.mark.long
def test_every_job_writes_its_rows(tmp_path):
    """Both cells at the same time, each in a process of its own, which got the command pickled."""
    printed = finish(start(tmp_path, *SWEEP, "hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5"))
    assert "ERROR" not in printed
    results = tmp_path / "results"
    found = load(results, "default")
    assert sorted(found.runs["seed"]) == [0, 1]
    assert set(found.runs["status"]) == {"ok"}
    assert len(found.prompts) == 8
    assert (found.runs["identical"] == 1).all()
    before = stamps(results)
    assert [execute(results, *CELLS, f"seed={seed}") for seed in (0, 1)] == ["skipped", "skipped"]
    assert stamps(results) == before
    assert {path.split("/")[0] for path in before} == {"default"}, "the jobs' own files are not among the results"


def launcher(name: str, *overrides: str) -> DictConfig:
    """A launcher's config as `python -m specdec_trees.run -m hydra/launcher=...` composes it."""
    return of_hydra(f"hydra/launcher={name}", "hydra.mode=MULTIRUN", *overrides).launcher


def asked(config: DictConfig, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, str]:
    """The sbatch options that the launcher's parameters become, as the plugin hands them to submitit."""
    from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf

    monkeypatch.setattr(submitit.SlurmExecutor, "affinity", classmethod(lambda cls: 1))
    executor = submitit.AutoExecutor(cluster="slurm", folder=folder, slurm_max_num_timeout=config.max_num_timeout)
    own = {"_target_", "submitit_folder", "max_num_timeout"}
    shared = OmegaConf.structured(BaseQueueConf)
    given = {key: value for key, value in OmegaConf.to_container(config, resolve=True).items() if key not in own}
    executor.update_parameters(**{key if key in shared else f"slurm_{key}": value for key, value in given.items()})
    slurm = executor._executor
    slurm.parameters["map_count"] = 40  # as it is set for the cells of a sweep
    text = slurm._make_submission_file_text("true", "uid")
    options = (line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH --"))
    return {name: value for name, _, value in (option.partition("=") for option in options)}


def test_slurm_is_asked_for_one_gpu_per_cell(monkeypatch, tmp_path):
    options = asked(launcher("slurm_gpu"), monkeypatch, tmp_path)
    wanted = {"nodes": "1", "ntasks-per-node": "1", "gpus-per-node": "1", "cpus-per-task": "8", "mem": "64GB"}
    assert wanted.items() <= options.items()
    assert options["time"] == "1440"
    assert options["signal"].endswith("@120")
    assert options["job-name"] == "specdec"
    assert options["array"] == "0-39%16", "a sweep is one array, 16 cells at a time"


def test_what_a_cluster_asks_for_can_be_added(monkeypatch, tmp_path):
    own = ("partition=gpu", "account=me", "gpus_per_node=4", "constraint=h100", "qos=long")
    config = launcher("slurm_gpu", *(f"hydra.launcher.{option}" for option in own))
    options = asked(config, monkeypatch, tmp_path)
    wanted = {"partition": "gpu", "account": "me", "gpus-per-node": "4", "constraint": "h100", "qos": "long"}
    assert wanted.items() <= options.items()


@pytest.mark.parametrize(("name", "kind"), [("slurm_gpu", "SlurmLauncher"), ("joblib", "JoblibLauncher")])
def test_launchers_are_built_from_their_configs(name, kind):
    config = launcher(name)
    assert type(instantiate(config)).__name__ == kind
    if name == "joblib":
        assert config.n_jobs == 1, "cells side by side spoil each other's timing"
    else:
        assert Path(config.submitit_folder).name == "%j"
