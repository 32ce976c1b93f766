"""What drafters are called and look like: the field's names, one look per method, one scale per quantity."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure as Canvas

from specdec_trees.artifacts import frame, style
from specdec_trees.artifacts.definitions import differing, drafter_label, rule_label
from specdec_trees.locations import CONF
from specdec_trees.papers.registry import ARTIFACTS

NAMES = {
    ("autoregressive", ""): ({}, "autoregressive"),
    ("chain", "4"): ({"shape": {"_target_": "s.chain", "depth": 4}}, "chain of 4"),
    ("binary", "4"): ({"shape": {"_target_": "s.kary", "branching": 2, "depth": 4}}, "binary, depth 4"),
    ("binary", "25"): ({"shape": {"_target_": "s.binary_bfs", "size": 25}}, "binary, n = 25"),
    ("eagle_tree", ""): ({"shape": {"_target_": "s.eagle25"}}, "EAGLE's tree"),
    ("branching", ""): ({"shape": {"_target_": "s.branching", "widths": [4, 2, 2, 1]}}, "MCSD 4-2-2-1"),
    ("target_init_mcsd", ""): ({"widths": [2, 4, 3, 1, 1]}, "target-initialised MCSD 2-4-3-1-1"),
    ("dynamic_mcsd", ""): ({"width": 8, "depth": 5}, "dynamic MCSD, W = 8"),
    ("spec_infer", ""): ({"shape": {"num_sequences": 5, "depth": 8}}, "SpecInfer, 5 sequences of 8"),
    ("opt_tree", ""): ({"n": 50, "delta": 0.5, "max_depth": None}, "OPT-Tree, n = 50"),
    ("eagle2", ""): ({"total": 60, "depth": 5, "k": 10}, "EAGLE-2, n = 59"),
    ("sequoia", ""): ({"n": 127, "depth": None, "acceptance": [0.5]}, "Sequoia, n = 127"),
    ("gsd", ""): ({"k": 4, "tau": 2, "verify_cap": 100}, "GSD"),
    ("suffix_automaton", ""): ({"n": 10}, "suffix automaton, n = 10"),  # one that is not known here
    ("beam", ""): ({"k": 4, "depth": 6}, "beam"),
}


@pytest.mark.parametrize(("which", "given"), NAMES.items(), ids=str)
def test_a_drafter_is_called_as_its_field_writes_it(which, given) -> None:
    params, name = given
    assert drafter_label(which[0], params) == name


def test_arguments_that_differ_are_in_words_and_structures_by_their_kind() -> None:
    own = {"width": 8, "decision": {"kind": "topk", "sha256": "86"}, "acceptance": [0.5], "shape": {"_target_": "s"}}
    other = {"width": 6, "decision": None, "acceptance": [0.4], "shape": {"_target_": "t"}}
    assert differing(own, [own, other]) == {"width": "8", "decision": "topk"}
    assert differing(other, [own, other]) == {"width": "6", "decision": "None"}
    assert differing(own, [own, dict(own)]) == {}


def test_every_rule_has_words_of_its_own() -> None:
    rules = {path.stem for path in (CONF / "verifier").glob("*.yaml")} - {"by_draws", "by_draws_eagle", "by_root"}
    words = [rule_label(rule) for rule in rules]
    assert len(set(words)) == len(words) > 10
    assert not [word for word in words if "_" in word]


def test_what_would_have_the_same_name_has_its_config_behind_it(cells) -> None:
    for drafter, method, params in (("beam", "beam", {}), ("beam_k8", "beam", {}), ("chain4", "chain", {"depth": 4})):
        cells.add(drafter, method, params=params)
    assert frame.load(cells.load())["name"].tolist() == ["beam (beam)", "beam (beam_k8)", "chain"]


def test_a_method_looks_the_same_beside_any_others() -> None:
    alone, beside = style.of_methods(["dyspec"])[0], style.of_methods(["chain", "opt_tree", "dyspec"])[2]
    assert alone == beside == style.of_method("dyspec")
    assert style.of_method("of_tomorrow") == style.of_methods(["chain", "of_tomorrow"])[1]


def test_methods_and_the_lines_of_one_method_are_told_apart() -> None:
    looks = style.of_methods(["opt_tree", "opt_tree", "sequoia", "opt_tree", "opt_tree"])
    assert len({(look["color"], str(look["linestyle"])) for look in looks}) == len(looks)
    told = [(colour, line) for name, (colour, _, line) in style.METHODS.items() if name != "branching"]
    assert len(set(told)) == len(told)


def test_panels_of_one_quantity_have_one_scale() -> None:
    canvas = Canvas()
    first, second, other = canvas.subplots(1, 3)
    for axes, top, label in ((first, 2, "mal"), (second, 9, "mal"), (other, 500, "tokens_per_s")):
        axes.set(ylabel=label, ylim=(0, top))
    meshes = [axes.pcolormesh([[0, most]]) for axes, most in ((first, 3), (second, 30))]
    for mesh, axes in zip(meshes, (first, second), strict=True):
        canvas.colorbar(mesh, ax=axes, label="steps")
    style.same_scale(canvas)
    assert first.get_ylim() == second.get_ylim()
    assert first.get_ylim()[1] >= 9
    assert other.get_ylim() == (0, 500)
    assert [mesh.get_clim() for mesh in meshes] == [(0, 30), (0, 30)]


def test_square_maps_have_axes_of_their_data() -> None:
    canvas, axes = style.panels("title", "", 2)
    for panel, longest in zip(axes, (9, 60), strict=True):
        panel.set(xlim=(0, longest), ylim=(0, longest), aspect="equal", xlabel="E(A)", ylabel="A")
    style.same_scale(canvas)
    assert [(panel.get_xlim(), panel.get_ylim()) for panel in axes] == [((0, end), (0, end)) for end in (9, 60)]


def test_forward_times_stand_over_a_logarithmic_size(cells) -> None:
    cells.add_latency()
    figure, _ = ARTIFACTS["opt_tree/fig3"].build("fig3", cells.load())
    assert figure.canvas.axes[0].get_xscale() == "log"
