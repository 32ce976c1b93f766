"""Instruments beside the measurement: rows per node, answers piece by piece, forward times."""

import json
from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch
from cells import cell, config, word_pair
from doubles import BigramLM
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from specdec_core import Sampling, TokenTree, Verdict, generate, shapes
from specdec_core.drafters import Autoregressive, Eagle2, OptTree, StaticTree, TokenGraph
from specdec_core.engine import Generation, Step
from specdec_core.models import ModelOutput, Pair
from specdec_core.verifiers import TargetSample
from specdec_trees.artifacts.case_study import read
from specdec_trees.calibrate import forward_times
from specdec_trees.configs.cells import dataset_of, pair_of
from specdec_trees.measure.cell import LatencyGrid, Runtime
from specdec_trees.measure.measurement import Measurement
from specdec_trees.measure.recorders import NodeRecorder
from specdec_trees.measure.to_rows import Rows
from specdec_trees.measure.transcript import DRAFT, MERGED, TARGET, pieces, write_case_study
from specdec_trees.prompts.datasets import Conversation, load
from specdec_trees.results.rows import NodeRow, StepRow

TALK = Conversation("talk", ("w3 w1 w4", "w1 w5"))


@pytest.fixture(scope="module")
def pair() -> Pair:
    """The target drafts for itself, so that much is accepted."""
    made = word_pair()
    return replace(made, draft=word_pair().target)


def recorded(pair: Pair, drafter: str, temperature: float, new: int = 23) -> Rows:
    rows = Rows()
    made = cell(drafter, new=new, temperature=temperature)
    Measurement(made, pair, rows, Runtime(record_nodes=True)).run(TALK)
    return rows


def by_step(rows: Rows) -> list[tuple[StepRow, list[NodeRow]]]:
    return [
        (step, [node for node in rows.nodes if (node.turn, node.step) == (step.turn, step.step)]) for step in rows.steps
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("drafter", ["opt_tree", "chain4", "branching_4_2_2_1_iid", "autoregressive"])
def test_nodes_agree_with_steps(drafter, temperature, pair):
    """The pass of its own decodes the same as the measured one."""
    rows = recorded(pair, f"drafter={drafter}", temperature)
    for step, nodes in by_step(rows):
        assert [node.node for node in nodes] == list(range(1, step.num_drafted + 1))
        assert max((node.depth for node in nodes), default=0) == step.depth
        assert sum(node.accepted for node in nodes) == step.num_accepted
        assert sorted(node.depth for node in nodes if node.accepted) == list(range(1, step.num_accepted + 1))
        assert all(node.parent_accepted for node in nodes if node.accepted)
        every = sum(node.path_prob for node in nodes) + 1  # repeated draws count again
        assert every >= step.expected_acceptance * (1 - 1e-5)
        assert drafter.endswith("iid") or every == pytest.approx(step.expected_acceptance, rel=1e-5)
        assert all(0 <= node.path_prob <= node.edge_prob * (1 + 1e-6) for node in nodes)
        assert all(0 <= node.target_prob <= 1 for node in nodes)
        above = {0: 0} | {node.node: node.depth for node in nodes}
        assert all(above[node.parent] == node.depth - 1 for node in nodes)
        for parent in above:
            siblings = [node.rank for node in nodes if node.parent == parent]
            assert siblings == list(range(len(siblings)))
    assert len(rows.nodes) == sum(step.num_drafted for step in rows.steps)
    assert any(node.accepted for node in rows.nodes) == (drafter != "autoregressive")


def test_the_last_step_may_accept_more_than_is_kept(pair):
    """The nodes show what was judged, also where the answer ends inside the path by its length or by EOS."""
    free = recorded(pair, "drafter=chain4", 0.0)
    tokens = free.prompts[0].output_ids
    at = next(place for place in range(2, 20, 5) if tokens.index(tokens[place]) == place)
    ended = replace(pair, tokenizer=word_pair().tokenizer)
    ended.tokenizer.eos_token = f"w{tokens[at]}"
    rows = recorded(ended, "drafter=chain4", 0.0)
    step, nodes = [found for found in by_step(rows) if found[0].turn == 0][-1]
    assert rows.prompts[0].finish == "eos"
    assert step.num_accepted == step.kept == 2
    assert sum(node.accepted for node in nodes) == 4
    short = recorded(pair, "drafter=chain4", 0.0, new=3)
    assert [(step.num_accepted, step.kept) for step in short.steps] == [(4, 2)] * 2


@pytest.mark.parametrize(("temperature", "used"), [(0.0, 1.0), (0.5, 0.5), (1.0, 1.0)])
def test_node_probabilities_are_those_of_draft_and_target(temperature, used):
    """Checked on a tree of two levels whose distributions are known: p at the run's temperature, q as it was drawn."""
    table = torch.tensor([[0.0, 1.0, 2.0], [2.0, 0.0, 1.0], [1.0, 2.0, 0.0]])
    target, draft = BigramLM(table), BigramLM(table.flip(1))
    recorder, trees = NodeRecorder("run", "prompt", 0, Sampling(temperature)), []

    def watch(tree: TokenTree, scored: ModelOutput, verdict: Verdict) -> None:
        trees.append(tree)
        recorder(tree, scored, verdict)

    drafter = StaticTree(draft=draft, shape=shapes.kary(2, 2))
    options = {"max_new_tokens": 7, "sampling": Sampling(temperature)}
    generate(target, drafter, TargetSample(), [0], watch=watch, **options)
    p, q = (table / used).softmax(-1), table.flip(1).softmax(-1)
    nodes = [(tree, node) for tree in trees for node in range(1, tree.num_nodes)]
    for row, (tree, node) in zip(recorder.rows, nodes, strict=True):
        before, token = int(tree.tokens[tree.parents[node]]), int(tree.tokens[node])
        assert row.target_prob == pytest.approx(float(p[before, token]), rel=1e-5)
        assert row.edge_prob == pytest.approx(float(q[before, token]), rel=1e-5)


def test_a_virtual_roots_distribution_is_tempered_once():
    """It comes with the sampling settings applied, unlike the rows below it."""
    table = torch.tensor([[0.0, 1.0, 2.0], [2.0, 0.0, 1.0], [1.0, 2.0, 0.0]])
    sampling = Sampling(0.5)
    tree = TokenTree(torch.tensor([0, 2, 1]), torch.tensor([-1, 0, 1]), torch.ones(3))
    probs = sampling.probs(table[0])
    scored = ModelOutput(torch.cat((probs.log()[None], table[[2, 1]])), None, probs)
    recorder = NodeRecorder("run", "prompt", 0, sampling)
    recorder(tree, scored, Verdict(torch.tensor([0, 1]), (2,), 1))
    assert [row.target_prob for row in recorder.rows] == pytest.approx(
        [float(probs[2]), float(sampling.probs(table[2])[1])]
    )
    assert [(row.parent, row.rank, row.accepted, row.parent_accepted) for row in recorder.rows] == [
        (0, 0, True, True),
        (1, 0, False, True),
    ]


@pytest.mark.parametrize(
    "drafter",
    [
        lambda draft: StaticTree(draft=draft, shape=shapes.chain(4)),
        lambda draft: OptTree(draft=draft, n=20, delta=0.1),
        lambda draft: Eagle2(draft=draft, total=20, depth=3, k=4),
    ],
)
@pytest.mark.parametrize("new", [1, 2, 24])
def test_pieces_join_to_the_answer_and_tell_who_said_it(drafter, new, pair, tiny):
    prompts = {id(pair): [3, 1, 4], id(tiny): tiny.tokenizer("def main():\n")["input_ids"]}
    for models in (pair, tiny):
        made = generate(models.target, drafter(models.draft), TargetSample(), prompts[id(models)], max_new_tokens=new)
        found = list(pieces(models, made))
        text = models.tokenizer.decode(made.tokens, skip_special_tokens=True)
        assert "".join(piece for piece, _ in found) == text
        accepted = sum(min(step.num_accepted, step.kept) for step in made.steps)
        if models is pair:  # one word, one token
            assert [piece.strip() for piece, _ in found] == [f"w{token}" for token in made.tokens]
            assert sum(who == DRAFT for _, who in found) == accepted
            assert found[0][1] == TARGET
        assert sum(who == DRAFT for _, who in found) <= accepted
        assert {who for _, who in found} <= {TARGET, DRAFT}


@pytest.mark.parametrize(
    ("accepted", "behind", "kept", "said"),
    [
        (3, 2, 4, [DRAFT, MERGED, MERGED, TARGET]),
        (3, 2, 3, [DRAFT, MERGED, MERGED]),  # the path ends in EOS, or the answer with it
        (3, 2, 2, [DRAFT, MERGED]),
        (3, 3, 4, [MERGED, MERGED, MERGED, TARGET]),
        (2, 0, 3, [DRAFT, DRAFT, TARGET]),
        (2, None, 3, [DRAFT, DRAFT, TARGET]),
        (0, 0, 1, [TARGET]),
    ],
)
def test_what_is_accepted_behind_a_merge_edge_is_told_from_the_rest_of_the_path(accepted, behind, kept, said, pair):
    (step,) = steps(1)
    facts = {} if behind is None else {"num_behind_merge": behind}
    step = replace(step, num_accepted=accepted, kept=kept, facts=facts)
    made = Generation(list(range(1, kept + 2)), "length", [step], 0.1, 0.1)
    assert [who for _, who in pieces(pair, made)] == [TARGET, *said]


def test_pieces_of_a_token_graph_on_the_embedded_pair(tiny, tmp_path):
    """One in which something behind a merge edge is accepted; the file names its three classes."""
    (code,) = (talk for talk in load(dataset_of(config("dataset=gsd/case_study"))) if "def " in talk.turns[0])
    drafter = TokenGraph(draft=tiny.draft, tau=1, theta_prob=0.1, theta_sib=0.1)
    prompt = tiny.tokenizer(code.turns[0])["input_ids"]
    made = generate(tiny.target, drafter, TargetSample(), prompt, max_new_tokens=150)
    assert sum(step.facts["num_behind_merge"] for step in made.steps) > 0
    write_case_study(tmp_path, cell("drafter=gsd"), tiny, code, made)
    found = json.loads((tmp_path / "case_study.json").read_text())["pieces"]
    assert {who for _, who in found} == {"target", "draft", "listed", "merged"}
    assert "".join(text for text, _ in found) == tiny.tokenizer.decode(made.tokens, skip_special_tokens=True)


def steps(count: int) -> list[Step]:
    """Steps of autoregressive decoding."""
    return generate(word_pair().target, Autoregressive(), TargetSample(), [1], max_new_tokens=count + 1).steps


def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """One token per byte."""
    vocab = {character: number for number, character in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteDecoder()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize(("text", "cut"), [("né…!", 0), ("né…", 1), ("né…", 2), ("…", 1), ("n", 0)])
def test_characters_of_several_tokens_are_one_piece(text, cut, pair):
    """`cut` tokens of the last character are missing: what is there of it is shown as it is decoded."""
    models = replace(pair, tokenizer=bytes_tokenizer())
    tokens = models.tokenizer(text)["input_ids"]
    tokens = tokens[: len(tokens) - cut]
    found = [piece for piece, _ in pieces(models, Generation(tokens, "length", steps(len(tokens) - 1), 0.1, 0.1))]
    assert "".join(found) == models.tokenizer.decode(tokens)
    assert len(found) == len(text)


@pytest.mark.parametrize("new", [1, 9])
def test_a_case_study_is_written_and_read(new, pair, tmp_path):
    drafter = StaticTree(draft=pair.draft, shape=shapes.chain(4))
    made = generate(pair.target, drafter, TargetSample(), [3, 1, 4], max_new_tokens=new)
    write_case_study(tmp_path, cell("drafter=chain4"), pair, TALK, made)
    study = read(tmp_path)
    assert study.prompt == TALK.turns[0]
    assert "".join(piece for piece, _ in study.pieces) == pair.tokenizer.decode(made.tokens)
    assert json.loads((tmp_path / "case_study.json").read_text())["mal"] == (0 if new == 1 else 5)


def test_forward_times_are_positive_and_leave_the_prefix(pair):
    grid = LatencyGrid(num_prefix=10, warmup=2, repeats=5)
    times = list(forward_times.forward_times(pair.target, 3, grid))
    assert len(times) == 5
    assert all(0 < seconds < 5 for seconds in times)
    assert pair.target.cache.length == 10


def test_latency_rows_of_both_models(tiny, tmp_path):
    """Sizes beyond a model's positions are left out; others are timed upwards, then downwards."""
    grid = LatencyGrid(num_tokens=[1, 4, tiny.target.max_positions], num_prefix=8, warmup=1, repeats=3)
    spec, runtime = pair_of(config()), Runtime(device="cpu", dtype="float32", progress=False)
    rows = pd.DataFrame(map(asdict, forward_times.rows("times", spec, tiny, grid, runtime)))
    keys = list(zip(rows["role"], rows["num_tokens"], rows["repeat"], strict=True))
    both_ways = [
        (size, repeat) for sizes, first in (((1, 4), 0), ((4, 1), 2)) for size in sizes for repeat in (first, first + 1)
    ]
    assert keys == [(role, *one) for role in ("target", "draft") for one in both_ways]
    assert (rows["forward_s"] > 0).all()
    assert set(rows["num_prefix"]) == {8}
    alone = forward_times.rows("times", spec, replace(tiny, draft=None), grid, runtime)
    assert {row.role for row in alone} == {"target"}
    key = forward_times.key(spec, tiny, grid, runtime)
    assert key == forward_times.key(spec, tiny, grid, runtime)
    assert key != forward_times.key(replace(spec, draft=None), tiny, grid, runtime)
    assert key != forward_times.key(spec, tiny, replace(grid, num_prefix=9), runtime)


def test_forward_times_are_kept_by_the_sublayers_that_a_draft_skips(tiny, monkeypatch):
    """Where none is skipped the key is that of before there were any."""
    spec, runtime, hashed = pair_of(config("pair=tiny_self")), Runtime(device="cpu", dtype="float32"), []
    monkeypatch.setattr(forward_times, "run_id", lambda found: hashed.append(found["pair"]["draft"]) or "")
    for skipped in ({}, {"skipped_attention": (1,)}):
        bare = replace(spec.draft, skipped_layers=(2,), skipped_attention=(), skipped_mlp=())
        forward_times.key(replace(spec, draft=replace(bare, **skipped)), tiny, LatencyGrid(), runtime)
    assert hashed[1].pop("skipped_attention") == (1,)
    assert hashed[0] == hashed[1]
    before = {"id", "revision", "gated", "kind", "folder", "offload", "resident_layers", "bits", "skipped_layers"}
    assert set(hashed[0]) == before
