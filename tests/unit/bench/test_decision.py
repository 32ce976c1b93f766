"""Decision models: what they learn from, that they learn it, and that cells use them and are not what they learnt."""

import json
import shutil
from dataclasses import replace
from itertools import product

import pandas as pd
import pytest
import torch
from cells import config, execute, finish, stamps, start, word_pair

from specdec_core.errors import PairError, PromptError
from specdec_core.models import Pair
from specdec_core.models.causal_lm import FINAL
from specdec_core.models.decision import KINDS, DecisionModel, top_and_entropy
from specdec_trees.calibrate.decision import examples, prompts
from specdec_trees.calibrate.decision.examples import Examples, Prompt, collect
from specdec_trees.calibrate.decision.training import auc, digest, rows, scores, train
from specdec_trees.configs.cells import cell_of, dataset_of
from specdec_trees.measure.cell import DecisionPlan
from specdec_trees.prompts.datasets import DatasetError
from specdec_trees.results.store import Store, load

PLAN = DecisionPlan(new_tokens=12, width=4, epochs=3)
FEW = ("pair=tiny", "dataset=mini", "decoding=t1", "decoding.max_new_tokens=8", "runtime.warmup_conversations=0")
FORK = (*FEW, "drafter=dyn_mcsd", "verifier=by_root", "drafter.width=3", "limit=3")
CPU = torch.device("cpu")


def planned(results, *overrides):
    return cell_of(config(f"results_dir={results}", *FORK, "dataset.part=evaluation", *overrides))


def checkpoints(results):
    return sorted((results / "calibration" / "decision").glob("*.safetensors"))


def calibration(results):
    return {path: stamp for path, stamp in stamps(results).items() if path.startswith("calibration/")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A results folder in which `measure=decision` has run."""
    results = tmp_path_factory.mktemp("trained")
    assert execute(results, *FORK, "measure=decision", "name=fig7") == "ok"
    return results


@pytest.fixture(scope="module")
def pair() -> Pair:
    return word_pair()


def separable(count: int, size: int = 8) -> Examples:
    """Accepted exactly where the first feature is positive."""
    rng = torch.Generator().manual_seed(3)
    hidden, topk = torch.randn(count, size, generator=rng), torch.rand(count, 11, generator=rng)
    topk[:, 0] = hidden[:, 0]
    accepted = hidden[:, 0] > 0
    ids = [str(number) for number in range(count)]
    return Examples(
        features={"hidden": hidden, "topk": topk}, labels=accepted.float(), accepted=accepted, prompt_ids=ids
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_examples_are_what_plain_forwards_say(pair, monkeypatch, temperature):
    """Features of the node that produced the token, untempered; the label min(1, p/q) at the temperature."""
    seen, text = [], [3, 7, 11]

    class Watching(examples._Recorder):
        def __call__(self, tree, target, verdict):
            super().__call__(tree, target, verdict)
            for node in (tree.parents > 0).nonzero().flatten().tolist():
                seen.append([*text, int(tree.tokens[tree.parents[node]]), int(tree.tokens[node])])
            text.extend(verdict.tokens)

    monkeypatch.setattr(examples, "_Recorder", Watching)
    plan = replace(PLAN, temperature=temperature)
    found = collect(pair, [Prompt("a", list(text))], plan, seed=0, progress=False)
    assert len(found) == len(seen) >= 4 * 6
    assert found.prompt_ids == ["a"] * len(seen)
    for row, (*before, token) in enumerate(seen):
        outputs = {}
        for role, model in (("target", pair.target), ("draft", pair.draft)):
            model.reset(64)
            model.keep_hidden = FINAL
            outputs[role] = model.prefill(torch.tensor(before))
        p, q = (outputs[role].logits[-1].double() for role in ("target", "draft"))
        torch.testing.assert_close(found.features["hidden"][row], outputs["draft"].hidden[-1], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(
            found.features["topk"][row], top_and_entropy(outputs["draft"].logits)[-1], rtol=1e-3, atol=1e-5
        )
        if temperature:
            ratio = (p / temperature).softmax(-1)[token] / (q / temperature).softmax(-1)[token]
            assert float(found.labels[row]) == pytest.approx(min(1, float(ratio)), rel=1e-3)
        else:
            assert bool(found.accepted[row]) == bool(found.labels[row]) == (int(p.argmax()) == token)


def test_what_is_accepted_is_drawn_with_the_labels_probability(pair):
    prompts = [Prompt(str(number), [number, 7, 11]) for number in range(20)]
    found = collect(pair, prompts, replace(PLAN, new_tokens=40, width=10), seed=0, progress=False)
    assert ((found.labels >= 0) & (found.labels <= 1)).all()
    assert found.accepted[found.labels == 1].all()
    spread = float((found.labels * (1 - found.labels)).sum().sqrt())
    assert abs(float(found.accepted.sum() - found.labels.sum())) < 4 * spread
    assert 0 < float(found.accepted.float().mean()) < 1


def test_a_prompts_examples_do_not_depend_on_the_others(pair):
    one, two = Prompt("one", [3, 7]), Prompt("two", [9, 2, 4])
    both, alone = (collect(pair, list(some), PLAN, seed=0, progress=False) for some in ((one, two), (two,)))
    of_two = [number for number, prompt in enumerate(both.prompt_ids) if prompt == "two"]
    for kind in KINDS:
        torch.testing.assert_close(both.features[kind][of_two], alone.features[kind], rtol=0, atol=0)
    assert torch.equal(both.accepted[of_two], alone.accepted)


def test_prompts_that_do_not_fit_are_passed_over(pair, caplog):
    long, short = Prompt("long", [1] * 300), Prompt("short", [3, 7])
    found = collect(pair, [long, short], PLAN, seed=0, progress=False)
    assert set(found.prompt_ids) == {"short"}
    assert "1 of 2 prompts were passed over" in caplog.text
    with pytest.raises(PromptError):
        collect(pair, [long], PLAN, seed=0, progress=False)
    with pytest.raises(PairError, match="has no draft"):
        collect(replace(pair, draft=None), [short], PLAN, seed=0, progress=False)


@pytest.mark.parametrize("kind", KINDS)
def test_a_separable_set_is_learnt(kind, tmp_path):
    training, validation = separable(400), separable(400)
    early = scores(train(kind, training, validation, PLAN, seed=0, device=CPU), training)
    assert ((early > 0) & (early < 1)).all()
    model = train(kind, training, validation, replace(PLAN, epochs=30, rate=0.01), seed=0, device=CPU)
    said = scores(model, training)
    assert said.shape == (400,)
    assert ((said > 0.5) == training.accepted).float().mean() > 0.98
    assert float(model.facts["validation_loss"]) < 0.1
    model.save(tmp_path / "model.safetensors")
    again = DecisionModel.load(tmp_path / "model.safetensors")
    assert torch.equal(scores(again, training), said)
    assert (again.kind, again.facts, digest(again)) == (kind, model.facts, digest(model))


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_repeatable_bit_for_bit(kind):
    examples = separable(300)
    same, again, other = (train(kind, examples, examples, PLAN, seed=seed, device=CPU) for seed in (0, 0, 1))
    assert digest(same) == digest(again) != digest(other)
    assert same.facts == again.facts
    state = torch.random.get_rng_state()
    train(kind, examples, examples, PLAN, seed=0, device=CPU)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_the_best_epoch_is_kept():
    """Trained on the opposite of what is validated: every epoch makes it worse, so that the first one stays."""
    training, validation = separable(400), separable(400)
    wrong = replace(validation, labels=1 - validation.labels)
    model = train("hidden", training, wrong, replace(PLAN, epochs=5, rate=0.01), seed=0, device=CPU)
    first = train("hidden", training, wrong, replace(PLAN, epochs=1, rate=0.01), seed=0, device=CPU)
    assert model.facts["epoch"] == "1"
    assert digest(model) == digest(first)


def test_topk_learns_from_as_many_accepted_as_rejected_tokens(caplog):
    examples = separable(200)
    few = replace(examples, accepted=torch.arange(200) < 30)
    facts = {kind: train(kind, few, examples, PLAN, seed=0, device=CPU).facts for kind in KINDS}
    assert {kind: facts[kind]["num_examples"] for kind in KINDS} == {"hidden": "200", "topk": "60"}
    assert not caplog.text
    all_accepted = replace(few, accepted=few.labels >= 0)
    assert train("topk", all_accepted, few, PLAN, seed=0, device=CPU).facts["num_examples"] == "200"
    assert "cannot be balanced" in caplog.text


def test_what_cannot_be_learnt_is_a_sentence():
    examples = separable(100)
    broken = {**examples.features, "hidden": examples.features["hidden"] * torch.nan}
    with pytest.raises(ValueError, match="not finite"):
        train("hidden", replace(examples, features=broken), examples, PLAN, seed=0, device=CPU)


def test_rows_say_what_a_model_says(pair):
    examples = separable(50)
    model = train("topk", examples, examples, PLAN, seed=0, device=CPU)
    model.facts |= {"pair": "p", "dataset": "d", "temperature": "0.7", "num_prompts": "9"}
    found = pd.DataFrame(rows(model, examples, "key"))
    assert found["score"].tolist() == scores(model, examples).tolist()
    assert found["accepted"].tolist() == examples.accepted.tolist()
    constant = {"run_id": "key", "pair": "p", "dataset": "d", "kind": "topk", "temperature": 0.7, "num_prompts": 9}
    assert found[list(constant)].drop_duplicates().to_dict("records") == [constant]


def test_auc_is_the_share_of_pairs_in_order():
    rng = torch.Generator().manual_seed(0)
    said, accepted = torch.randint(6, (40,), generator=rng) / 6, torch.rand(40, generator=rng) < 0.4
    pairs = list(product(said[accepted].tolist(), said[~accepted].tolist()))
    expected = sum((high > low) + (high == low) / 2 for high, low in pairs) / len(pairs)
    assert auc(pd.Series(said.numpy()), pd.Series(accepted.numpy())) == pytest.approx(expected)
    assert pd.isna(auc(pd.Series([0.1, 0.2]), pd.Series([True, True])))


def conversations(folder, turns):
    folder.mkdir(parents=True)
    lines = [json.dumps({"id": str(number), "turns": found}) for number, found in enumerate(turns)]
    (folder / "mini.jsonl").write_text("\n".join(lines))
    return folder


def split(folder, *, limit=None, seed=0, **plan):
    dataset = dataset_of(config("dataset=mini"))
    return prompts.split(dataset, DecisionPlan(**plan), data_dir=folder, limit=limit, seed=seed)


def test_prompts_are_split_by_conversation_and_seeded(tmp_path):
    folder = conversations(tmp_path / "data", [[f"text {number}"] for number in range(48)])
    found = split(folder)
    ids = [{known.id for known in some} for some in (found.training, found.validation)]
    assert [len(some) for some in ids] == [21, 3]
    assert ids[0] | ids[1] == {str(number) for number in range(24)}  # the calibration part is the first half
    assert found == split(folder)
    assert found != split(folder, seed=1)
    exact = split(folder, prompts=5, validation=3)
    assert (len(exact.training), len(exact.validation)) == (5, 3)
    few = split(folder, limit=4)
    assert (len(few.training), len(few.validation)) == (3, 1)
    with pytest.raises(DatasetError, match=r"mini gives 1; raise limit"):
        split(folder, limit=1)


def test_texts_of_the_evaluation_part_are_not_trained_on(tmp_path):
    """Nor is a text trained on twice, or validated on too."""
    calibration = [["zero"], ["one"], ["one "], ["two"], ["three"]]
    evaluation = [["four"], ["five", "two"], ["six"], ["seven"], ["eight"]]
    found = split(conversations(tmp_path / "data", calibration + evaluation))
    texts = sorted(known.turns[0].strip() for known in found.training + found.validation)
    assert texts == ["one", "three", "zero"]


def test_models_are_trained_once_and_shown_where_they_are_used(trained, capsys):
    before = calibration(trained)
    assert len(checkpoints(trained)) == 2
    assert execute(trained, *FORK, "measure=decision", "name=fig7") == "ok"
    printed = capsys.readouterr().out
    cells = {word: planned(trained, f"drafter.decision={word}", "name=fig8") for word in (*KINDS, "null")}
    assert calibration(trained) == before
    assert all(str(path) in printed for path in checkpoints(trained))
    assert [line.split()[:2] for line in printed.splitlines()[1:3]] == [["hidden", "2+1"], ["topk", "2+1"]]
    assert len({cell.run_id for cell in cells.values()}) == 3
    assert cells["null"].drafter_params["decision"] is None
    kept, shown = Store(trained, "calibration").read("decisions"), load(trained, "fig8").decisions
    assert shown.equals(kept)
    assert load(trained, "fig7").decisions.equals(kept)
    assert set(kept["kind"]) == set(KINDS)
    assert set(kept["run_id"]) == {path.stem for path in checkpoints(trained)}
    assert kept["score"].between(0, 1).all()
    assert kept["label"].between(0, 1).all()
    assert set(kept["num_prompts"]) == {2}
    assert kept["prompt_id"].nunique() == 1


def test_a_cell_is_known_by_the_weights_of_its_model(trained):
    for path in checkpoints(trained):
        model = DecisionModel.load(path)
        cell = planned(trained, f"drafter.decision={model.kind}")
        said = {"kind": model.kind, "sha256": digest(model)}
        assert cell.drafter_params["decision"] == cell.config["drafter"]["decision"] == said
        assert str(trained) not in json.dumps(dict(cell.config))
        elsewhere = trained / "copy" / "my.safetensors"
        elsewhere.parent.mkdir(exist_ok=True)
        shutil.copy(path, elsewhere)
        assert planned(trained, f"drafter.decision={elsewhere}").run_id == cell.run_id


def test_a_model_goes_by_the_prompts_that_it_learnt_from(trained):
    """And not by how they came to be chosen, nor by a draft temperature that is not its own."""
    before = checkpoints(trained)
    for same in ("calibration.decision.prompts=20", "pair.draft_temperature=0.9", "force=true", "dataset.limit=20"):
        planned(trained, "drafter.decision=topk", same)
    assert checkpoints(trained) == before


def test_a_drafter_without_decisions_is_given_no_model(tmp_path):
    with pytest.raises(ValueError, match="drafter opt_tree takes no decision model; drafter=dyn_mcsd does"):
        cell_of(config(f"results_dir={tmp_path}", *FEW, "drafter=opt_tree", "+drafter.decision=hidden"))
    assert not checkpoints(tmp_path), "it is refused before one is trained"


def test_cells_run_with_a_model_and_count_its_calls(trained):
    for beta, calls in ((1, 1), (0, 4)):
        chosen = (*FORK, "dataset.part=evaluation", "drafter.decision=hidden", f"drafter.beta={beta}", "name=cells")
        assert execute(trained, *chosen, "runtime.baseline=false") == "ok"
        results = load(trained, "cells")
        run = results.runs.iloc[-1]
        assert json.loads(run["drafter_params"])["decision"]["kind"] == "hidden"
        steps = results.steps[results.steps["run_id"] == run["run_id"]]
        assert set(steps["decision_calls"]) == {calls}  # above 1 no score is, above 0 all are
        assert set(steps["depth"]) == {calls + 1 if beta else 6}


@pytest.mark.long
def test_models_are_the_same_bit_for_bit_elsewhere(trained, tmp_path):
    printed = finish(start(tmp_path, *FORK, "measure=decision", "results_dir=r", "name=fig7", "runtime.device=cpu"))
    assert "validation loss" in printed
    assert [path.name for path in checkpoints(tmp_path / "r")] == [path.name for path in checkpoints(trained)]
    for one, other in zip(checkpoints(trained), checkpoints(tmp_path / "r"), strict=True):
        assert digest(DecisionModel.load(one)) == digest(DecisionModel.load(other))
    both = [Store(folder, "calibration").read("decisions") for folder in (trained, tmp_path / "r")]
    assert both[0].equals(both[1])


def test_facts_say_where_a_model_comes_from(trained):
    facts = {path.stem: DecisionModel.load(path).facts for path in checkpoints(trained)}
    for known in facts.values():
        assert (known["draft"], known["hidden_size"], known["temperature"]) == ("tiny/draft", "128", "1.0")
        assert (known["num_prompts"], known["num_validation_prompts"]) == ("2", "1")
        assert len(known["training_prompts"].split()) == 2
        assert float(known["validation_loss"]) > 0
        assert str(trained) not in json.dumps(known)


@pytest.mark.parametrize("part", ["all", "calibration"])
def test_prompts_that_are_trained_on_are_not_decoded(trained, tmp_path, part):
    for word in (*KINDS, *map(str, checkpoints(trained))):
        with pytest.raises(DatasetError, match=r"3 of the 3 conversations .* set dataset\.part=evaluation"):
            planned(tmp_path, f"drafter.decision={word}", f"dataset.part={part}")
    assert not checkpoints(tmp_path), "it is refused before it is trained"


def test_a_file_remembers_its_prompts_under_another_dataset(trained, tmp_path):
    lines = [json.loads(line) for line in (prompts.datasets.BUNDLED / "prompts.jsonl").open(encoding="utf-8")]
    folder = conversations(tmp_path / "data", [["something else", lines[0]["turns"][0]], ["another"]])
    with pytest.raises(DatasetError, match="1 of the 2 conversations"):
        planned(tmp_path, f"drafter.decision={checkpoints(trained)[0]}", f"data_dir={folder}", "dataset.part=all")


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("hiden", 'unknown drafter.decision "hiden"; did you mean "hidden"'),
        ("3", 'unknown drafter.decision "3"'),
        (
            "nowhere.safetensors",
            "there is no decision model nowhere.safetensors; python -m specdec_trees.decision_model",
        ),
    ],
)
def test_mistyped_decisions_are_refused_in_a_sentence(tmp_path, word, sentence):
    with pytest.raises(ValueError, match=sentence.replace(".", r"\.")):
        planned(tmp_path, f"drafter.decision={word}")


def test_other_files_and_other_drafts_are_refused_in_a_sentence(tmp_path, caplog):
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="is no decision model"):
        planned(tmp_path, f"drafter.decision={other}")
    model = DecisionModel.of("hidden", 64)
    model.facts = {"draft": "another/draft"}
    model.save(other)
    assert execute(tmp_path, *FORK, "dataset.part=evaluation", f"drafter.decision={other}") == "failed"
    (error,) = load(tmp_path, "default").runs["error"]
    assert "hidden states of size 64" in error
    assert "was trained for another/draft, not tiny/draft" in caplog.text


def test_what_a_model_depends_on_has_another_file(trained, tmp_path):
    """The cell's own temperature and tree do not matter; seed and plan do."""
    shutil.copytree(trained / "calibration", tmp_path / "calibration")
    for same in ("decoding.temperature=0.6", "drafter.depth=2"):
        planned(tmp_path, "drafter.decision=hidden", same)
        assert len(checkpoints(tmp_path)) == 2
    for number, override in enumerate(("seed=1", "calibration.decision.width=4"), 2):
        planned(tmp_path, "drafter.decision=hidden", override)
        assert len(checkpoints(tmp_path)) == 2 * number
    with pytest.raises(ValueError, match=r"calibration\.decision\.batch must be positive"):
        planned(tmp_path, "drafter.decision=hidden", "calibration.decision.batch=0")
