"""Options that are mistyped, and the sentences that say so, before any weights are loaded."""

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import pytest
from cells import config, execute
from composed import composed, names
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, InstantiationException
from omegaconf import OmegaConf

from specdec_trees.calibrate import kept
from specdec_trees.configs.cells import scientific_config
from specdec_trees.configs.options import check_values, sentence
from specdec_trees.configs.values import expected, fits, shown
from specdec_trees.measure import pairs
from specdec_trees.run import check_choices

WRONG_VALUES = {
    "drafter.n=abc": "drafter.n=abc: a whole number is expected",
    "drafter.n=true": "drafter.n=true: a whole number is expected",
    "drafter.n=2.5": "drafter.n=2.5: a whole number is expected",
    "drafter.n='3'": 'drafter.n="3": a whole number is expected',
    "drafter.n=[1,2]": "drafter.n=[1, 2]: a whole number is expected",
    "drafter.n=hardware": "drafter.n=hardware: a whole number is expected",
    "drafter.draft_temperature=warm": "drafter.draft_temperature=warm: a number is expected",
    "pair.draft_temperature=warm": "pair.draft_temperature=warm: a number is expected",
    "+drafter.nn=3": 'unknown option "drafter.nn"; did you mean "drafter.n"',
    "+drafter.draft=3": 'unknown option "drafter.draft"',
    "drafter=gsd drafter.tau_as_context=maybe": "drafter.tau_as_context=maybe: true or false is expected",
    "drafter._target_=foo.Bar": "drafter._target_=foo.Bar: there is no such class or function",
    "~drafter.n": "drafter opt_tree lacks n; see conf/drafter/opt_tree.yaml",
    "~pair.draft ~pair.template ~pair.target.id": "pair tiny lacks draft, template, target.id; see conf/pair/tiny.yaml",
    "pair=tiny_eagle ~pair.template": "pair tiny_eagle lacks template; see conf/pair/tiny_eagle.yaml",
    "dataset=c4 ~dataset.name ~dataset.hub.split dataset.adapter=null dataset.prompt_tokens=null": (
        "dataset lacks name, hub.split, adapter, prompt_tokens; see conf/dataset/c4.yaml"
    ),
    "drafter.n=${foo}": "drafter.n: Interpolation key 'foo' not found",
    "drafter=sequoia drafter.n=hardwar": "drafter.n=hardwar: a whole number or hardware is expected",
    "drafter=sequoia drafter.acceptance=foo": "drafter.acceptance=foo: a list of numbers or measured is expected",
    "drafter=sequoia drafter.draws=foo verifier=by_draws": 'unknown drafter.draws "foo"',
    "drafter=mcsd +mcsd.k_config=4": "mcsd.k_config=4: a list of whole numbers is expected",
    "drafter=gsd +gsd.tau=x": "gsd.tau=x: a whole number or null is expected",
    "drafter=sized_eagle2 +size=abc": "size=abc: a whole number is expected",
    "drafter=ti_mcsd verifier=by_root drafter.widths=4": "drafter.widths=4: a list of whole numbers is expected",
    "drafter=chain4 drafter.shape.depth=x": "drafter.shape.depth=x: a whole number is expected",
    "drafter=chain4 drafter.shape=3": "drafter.shape=3: a mapping is expected",
    "verifier.allow_lossy=maybe": "verifier.allow_lossy=maybe: true or false is expected",
    "verifier=longest_subtree verifier.rule.replacement=1": "verifier.rule.replacement=1: true or false is expected",
    "seed=x": "seed=x: a whole number is expected",
    "seed=true": "seed=true: a whole number is expected",
    "seed=1.5": "seed=1.5: a whole number is expected",
    "limit=few": "limit=few: a whole number or null is expected",
    "force=maybe": "force=maybe: true or false is expected",
    "record_nodes=perhaps": "record_nodes=perhaps: true or false is expected",
    "results_dir=null": "results_dir=null: text is expected",
    "decoding.max_new_tokens=abc": "decoding.max_new_tokens=abc: a whole number is expected",
    "dataset.max_new_tokens=abc": "dataset.max_new_tokens=abc: a whole number is expected",
    "decoding.temperature=warm": "decoding.temperature=warm: a number is expected",
    "+decoding.foo=1": 'unknown option "decoding.foo"; did you mean',
    "dataset.files=prompts": "dataset.files=prompts: a list of words is expected",
    "dataset=gsm8k dataset.hub.path=3": "dataset.hub.path=3: text is expected",
    "pair.target=foo": "pair.target=foo: a mapping is expected",
    "+pair.target.foo=1": 'unknown option "pair.target.foo"; did you mean "pair.target.folder"',
    "pair=tiny_self pair.draft.skipped_layers=[a]": 'pair.draft.skipped_layers=["a"]: a list of whole numbers is',
    "pair=planted/small pair.planted.private=x": "pair.planted.private=x: a number is expected",
    "runtime.warmup_conversations=few": "runtime.warmup_conversations=few: a whole number is expected",
    "runtime.warmup_conversations=-1": "runtime.warmup_conversations must not be negative, not -1",
    "runtime.tensor_parallel=maybe": "runtime.tensor_parallel=maybe: true or false is expected",
    "runtime.device_map=3": "runtime.device_map=3: text or a mapping or null is expected",
    "calibration.acceptance.prompts=x": "calibration.acceptance.prompts=x: a whole number is expected",
    "calibration.latency=3": "calibration.latency=3: a mapping is expected",
    "measure=attention attention.heads=x": "attention.heads=x: a whole number is expected",
    "name=../../x": 'name="../../x": a name is a path inside of a folder',
    "name=/tmp/x": 'name="/tmp/x": a name is a path inside of a folder',
    "name=a/.b": "name=a/.b: a name is a path inside of a folder",
    "name=''": 'name="": a name is a path inside of a folder',
    "pair.name=..": 'pair.name="..": a name is a path inside of a folder',
    "dataset.name=a//b": "dataset.name=a//b: a name is a path inside of a folder",
    "drafter.name='a\tb'": "drafter.name=a\tb: a name is a path inside of a folder",
    "results_dir=": "results_dir is empty",
    "results_dir=''": "results_dir is empty",
    "drafter.n=99999999999999999999": "drafter.n=99999999999999999999: numbers are finite, whole ones below 2^63",
    "seed=-99999999999999999999": "seed=-99999999999999999999: numbers are finite",
    "decoding.temperature=inf": "decoding.temperature=Infinity: numbers are finite",
    "drafter.draft_temperature=nan": "drafter.draft_temperature=NaN: numbers are finite",
    "drafter=ti_mcsd verifier=by_root drafter.widths=[9223372036854775808]": "drafter.widths=[9223372036854775808]:",
    "runtime.num_threads=100000": "runtime.num_threads=100000: this process has ",
}
UNREADABLE = ["results_dir=it's here", "name=a(b", "data_dir=[a", "drafter.n={", 'name=a"b', "limit=1)"]
UNKNOWN = {
    "temperature=1": 'unknown option "temperature"; did you mean "decoding.temperature" or',
    "drafter.nn=3": 'unknown option "drafter.nn"; did you mean "drafter.n" or',
    "drafter.shape.dept=3": 'unknown option "drafter.shape.dept"; did you mean "drafter.shape.depth"',
    "foo=1": 'unknown option "foo"; did you mean "force"?',
    "limt=1": 'unknown option "limt"; did you mean "limit"?',
    "drafer=opt_tree": 'unknown option "drafer"; did you mean "drafter"',
    "mcsd.kconfig=4": 'unknown option "mcsd.kconfig"; did you mean "mcsd.k_config"',
}


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((pairs, "load_pair"), (pairs, "_planted"), (kept, "latency")):
        monkeypatch.setattr(module, name, lambda *given, **more: pytest.fail("weights were loaded"))


@pytest.mark.usefixtures("no_weights")
@pytest.mark.parametrize("overrides", WRONG_VALUES)
def test_a_value_that_does_not_fit_is_a_sentence_before_anything_is_loaded_or_written(overrides, tmp_path):
    with pytest.raises(ValueError, match=f"^{re.escape(WRONG_VALUES[overrides])}") as refused:
        execute(tmp_path, *overrides.split(" "))
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("override", UNKNOWN)
def test_an_unknown_option_gets_the_nearest(override):
    with pytest.raises(SystemExit) as stop:
        check_choices(["-m", "experiment=opt_tree/table1", override])
    assert str(stop.value.code).startswith(UNKNOWN[override])


@pytest.mark.parametrize("override", UNREADABLE)
def test_a_value_that_cannot_be_read_is_told_how_to_quote(override):
    with pytest.raises(SystemExit) as stop:
        check_choices([override])
    said = str(stop.value.code)
    assert said.startswith(f"{override}: ")
    assert "\n" not in said
    (written,) = shlex.split(said.rpartition("as text it is ")[2])
    check_choices([written])
    read = OverridesParser.create().parse_override(written)
    assert str(read.value()) == override.partition("=")[2]


def test_options_of_any_choice_are_known():
    for group in ("pair", "dataset", "drafter", "verifier", "decoding", "runtime", "calibration", "attention"):
        check_choices([f"{group}.{key}=1" for name in names(group) for key in composed(f"{group}={name}")[group]])
    check_choices(
        [f"{key}=1" for key, value in composed().items() if not OmegaConf.is_config(value) and value is not None]
    )
    check_choices(
        ["drafter.widths.0=3", "drafter.widths[0]=3", "mcsd.k_config=[3,1]", "size=3", "drafter.pruning=code"]
    )
    check_choices(["gsd.tau=1", "names.llama_1b=x"])  # of no file but those in conf/paper
    check_choices(
        ["-m", "hydra/launcher=joblib", "hydra.job.name=x", "+new=3", "~drafter.n", "pair.target.offload=true"]
    )


def test_an_option_of_another_choice_says_how_it_would_be_added():
    with pytest.raises(ConfigCompositionException) as refused:
        config("drafter=autoregressive", "drafter.n=3")
    assert sentence(refused.value).startswith('there is no option "drafter.n" in what was chosen; +drafter.n=3 adds it')
    with pytest.raises(ConfigCompositionException) as refused:
        config("drafter.nn=3")
    assert sentence(refused.value).startswith('unknown option "drafter.nn"; did you mean "drafter.n"')
    with pytest.raises(InstantiationException) as refused:
        execute(Path("nowhere"), "measure=attention", "attention.kernels=[foo]")
    assert sentence(refused.value).startswith('unknown attention.kernel "foo"; there are:')
    assert sentence(ValueError("as it is")) == "as it is"


@pytest.mark.parametrize("group", ["pair", "dataset", "drafter", "verifier", "decoding", "runtime"])
def test_every_yaml_passes(group):
    for name in names(group):
        check_values(composed(f"{group}={name}"))
        check_values(composed(f"{group}={name}", *(["decoding=t1"] if group != "decoding" else [])))


@pytest.mark.parametrize(
    "given", ["+decoding.top_k=5", "drafter.delta=1", "limit=3", "+size=3", "runtime.num_threads=2"]
)
def test_values_that_fit_pass(given):
    check_values(config(given))
    assert scientific_config(config(given))


@pytest.mark.parametrize(
    ("hint", "good", "bad", "words"),
    [
        (int, [3, -1], [True, 1.0, "3", None], "a whole number"),
        (float, [3, 0.5], [True, "3", None], "a number"),
        (bool, [True, False], [0, 1, "true"], "true or false"),
        (int | None, [3, None], [True, "null"], "a whole number or null"),
        (Sequence[float], [[1, 0.5], (), []], [3, "abc", [1, "x"], [True]], "a list of numbers"),
        (tuple[int, ...], [[1, 2, 3]], [[1, None], 1], "a list of whole numbers"),
        (Sequence[float] | Literal["measured"], [[0.5], "measured"], ["other", 1], "a list of numbers or measured"),
        (Mapping[str, int], [{"a": 1}], [{"a": "b"}, {1: 1}, []], "a mapping"),
    ],
)
def test_values_and_hints(hint, good, bad, words):
    assert all(fits(value, hint) for value in good)
    assert not any(fits(value, hint) for value in bad)
    assert expected(hint) == words


def test_values_are_shown_as_they_are_typed():
    assert [shown(value) for value in ("abc", "a b", "3", "", "null", None, True, [1, "a"], 0.5)] == [
        *("abc", "a b", '"3"', '""', '"null"', "null", "true", '[1, "a"]', "0.5")
    ]
