"""What the loop itself costs: share of a step outside forwards, and judging, on the embedded pair.

    python -m specdec_trees.speed.overhead            # or: make bench-overhead

`specdec_trees.speed.peers` has its speed beside other libraries'.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

import torch

from specdec_core import Sampling, TokenTree, generate, shapes
from specdec_core.drafters import Autoregressive, Drafter, DySpec, Eagle2, OptTree, StaticTree
from specdec_core.engine import Generation, Step
from specdec_core.models import ModelOutput, Pair
from specdec_core.sampling import draw_children
from specdec_core.verifiers import TargetSample, Verifier
from specdec_trees.calibrate.forward_times import forward_times
from specdec_trees.measure.cell import LatencyGrid
from specdec_trees.measure.recorders import RULES
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.prompts.embedded import prompts, tiny_pair

SIZES = (25, 60, 256, 768)
VOCABULARY, CHILDREN = 32_000, (8, 7)


def share_outside(steps: Sequence[Step]) -> float:
    """Share of the decoding time that is in neither a target nor a draft forward."""
    total = sum(step.seconds for step in steps)
    return 1 - sum(step.draft_s + step.score_s for step in steps) / total


def decoded(
    pair: Pair, drafter: Drafter, prompt_ids: list[list[int]], new: int, temperature: float = 0.0
) -> list[Generation]:
    """All prompts decoded, after one that is not counted."""
    generations = [
        generate(
            pair.target,
            drafter,
            TargetSample(),
            ids,
            max_new_tokens=new,
            sampling=Sampling(temperature),
            eos_token_ids=(),
        )
        for ids in [prompt_ids[0], *prompt_ids]
    ]
    return generations[1:]


def print_shares(pair: Pair, prompt_ids: list[list[int]], new: int, temperature: float) -> None:
    """Milliseconds per step and share outside forwards, by tree size."""
    print(f"\nOne decoding step in ms, OPT-Tree (delta 0.2), temperature {temperature:g}")
    print(f"{'n':>6} {'target':>8} {'draft':>8} {'tree':>8} {'judge':>8} {'commit':>8} {'outside forwards':>17}")
    assert pair.draft is not None
    for n in SIZES:
        generations = decoded(pair, OptTree(draft=pair.draft, n=n, delta=0.2), prompt_ids, new, temperature)
        steps = [step for generation in generations for step in generation.steps]
        names = ("score_s", "draft_s", "tree_s", "judge_s", "commit_s")
        means = [1e3 * statistics.fmean(getattr(step, name) for step in steps) for name in names]
        print(f"{n:>6} " + " ".join(f"{value:>8.2f}" for value in means) + f" {share_outside(steps):>16.1%}")


def print_walls(pair: Pair, prompt_ids: list[list[int]], new: int) -> None:
    """How far the sum of spans, which tables call decoding time, lies from the wall time of the decode loop."""
    assert pair.draft is not None
    methods: dict[str, Drafter] = {
        "autoregressive": Autoregressive(),
        "chain of 4": StaticTree(draft=pair.draft, shape=shapes.chain(4)),
        "binary, depth 4": StaticTree(draft=pair.draft, shape=shapes.kary(2, 4)),
        "EAGLE-2, n=60": Eagle2(draft=pair.draft, total=61, depth=6, k=10),
        "DySpec, n=25": DySpec(draft=pair.draft, n=25),
        "OPT-Tree, n=25": OptTree(draft=pair.draft, n=25, delta=0.2),
    }
    print("\nOne decoding step in ms, greedy: the sum of its spans, and the loop by the wall clock")
    print(f"{'method':<20} {'spans':>8} {'wall':>8} {'apart':>7}")
    for name, drafter in methods.items():
        found = decoded(pair, drafter, prompt_ids, new)
        steps = sum(len(generation.steps) for generation in found)
        spans, wall = (sum(getattr(generation, name) for generation in found) for name in ("decode_s", "wall_s"))
        print(f"{name:<20} {1e3 * spans / steps:>8.2f} {1e3 * wall / steps:>8.2f} {wall / spans - 1:>7.2%}")


def synthetic_tree(draws: str, rng: torch.Generator) -> tuple[TokenTree, ModelOutput]:
    """A tree of 8 + 56 nodes over 32,000 tokens and the target's logits: Gaussian, in part shared with the draft's."""
    shape = shapes.branching(CHILDREN)
    inner = 1 + CHILDREN[0]
    common = 3 * torch.randn(VOCABULARY, generator=rng)
    q = (common + torch.randn(inner, VOCABULARY, generator=rng)).softmax(-1)
    logits = common + torch.randn(shape.num_drafted + 1, VOCABULARY, generator=rng)
    edges, ids = draw_children(q, max(CHILDREN), draws, rng)
    parents, ranks = torch.tensor(shape.parents), torch.tensor(shape.ranks)
    tokens, probs = ids[parents.clamp(min=0), ranks], edges[parents.clamp(min=0), ranks]
    tokens[0], probs[0] = 0, 1.0
    rows = torch.arange(shape.num_drafted + 1)
    draft = (None, None) if draws == "topk" else (q, torch.where(rows < inner, rows, -1))
    return TokenTree(tokens, parents, probs, *draft), ModelOutput(logits)


def judge_times(draws: str, rule: Verifier, sampling: Sampling, trees: int, repeats: int) -> tuple[float, float]:
    """Median milliseconds of a judgement, and nodes on the accepted path, root counted."""
    rng, seconds, nodes = torch.Generator().manual_seed(0), [], 0
    for _ in range(trees):
        tree, target = synthetic_tree(draws, rng)
        for _ in range(repeats):
            start = time.perf_counter()
            verdict = rule.judge(tree, target, sampling, rng)
            seconds.append(time.perf_counter() - start)
            nodes += len(verdict.path)
    return 1e3 * statistics.median(seconds), nodes / len(seconds)


def print_judging(pair: Pair, trees: int = 5, repeats: int = 20) -> None:
    """The rules' cost beside a draft forward of the embedded pair."""
    assert pair.draft is not None
    forward = 1e3 * statistics.median(forward_times(pair.draft, 1, LatencyGrid()))
    print(f"\nJudging 64 nodes over {VOCABULARY} tokens at temperature 1; a draft forward takes {forward:.2f} ms")
    print(f"{'rule':<20} {'draws':<20} {'top-p':>6} {'ms':>7} {'path nodes':>11} {'ms per node':>12}")
    for rule in RULES.values():
        draws = "topk" if "topk" in rule.lossless_for else min(rule.lossless_for)
        for top_p in (1.0, 0.9):
            ms, nodes = judge_times(draws, rule, Sampling(1.0, top_p), trees, repeats)
            print(f"{type(rule).__name__:<20} {draws:<20} {top_p:>6} {ms:>7.2f} {nodes:>11.2f} {ms / nodes:>12.2f}")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--new", type=int, default=128, help="new tokens per prompt")
    args = parser.parse_args()
    pair = tiny_pair()
    conversations: list[Conversation] = prompts(args.prompts)
    prompt_ids = [pair.tokenizer(conversation.turns[0])["input_ids"] for conversation in conversations]
    print(f"embedded pair, {pair.target.dtype}, {pair.target.device}, {torch.get_num_threads()} threads")
    for temperature in (0.0, 1.0):
        print_shares(pair, prompt_ids, args.new, temperature)
    print_walls(pair, prompt_ids, args.new)
    print_judging(pair)


if __name__ == "__main__":
    main()
