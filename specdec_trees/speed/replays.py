"""What replays save: CPU seconds of recording, of replaying every method at every size, and of decoding them.

    python -m specdec_trees.speed.replays pair=smollm2_135m_draft data_dir=folder

The methods are those of `bench/budget`, at eight sizes. `sample` conversations are decoded and replayed, `recorded`
are recorded, and both are counted as `conversations`. Decoding is that of the methods alone: the baselines of a live
sweep come on top. Trees of fixed shape share their forwards: the first of them is charged with all by ranks.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from omegaconf import DictConfig
from tqdm import tqdm

from specdec_core.rank_replay import goes_by_ranks
from specdec_trees.configs.cells import cell_of, is_run, runtime_of
from specdec_trees.measure import pairs, record
from specdec_trees.measure.cell import RANKS
from specdec_trees.measure.cell_run import CellRun
from specdec_trees.measure.decoding import Decoding
from specdec_trees.plan.composing import composer
from specdec_trees.plan.jobs import sweep
from specdec_trees.prompts import datasets
from specdec_trees.prompts.datasets import Conversation
from specdec_trees.results.rows import METHOD
from specdec_trees.results.store import Store

SIZES = (4, 8, 16, 24, 32, 48, 64, 128)
DEFAULTS = {"sample": "4", "recorded": "16", "conversations": "80", "decoding.max_new_tokens": "32", "pair": "tiny"}


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one method at one size, all threads together."""

    method: str
    live_s: float
    replayed_s: float
    ranked_s: float | None
    """By lookup; None where its shape is not fixed."""

    @property
    def best_s(self) -> float:
        """Of the cheaper replay."""
        return self.replayed_s if self.ranked_s is None else self.ranked_s


def costs(configs: Sequence[DictConfig], root: Path, sample: int, recorded: int) -> tuple[float, list[Cost]]:
    """Seconds of recording a conversation, many at once, and of each cell on a sample of them."""
    first, runtime = cell_of(configs[0]), runtime_of(configs[0])
    conversations = datasets.load(first.dataset, data_dir=runtime.data_dir, limit=recorded)
    pair = pairs.loaded(first.pair, runtime)
    run = CellRun(first, replace(runtime, progress=False), Store(root, "replays"))
    begin = time.process_time()
    recordings = record.kept(run, record.Beside.needed(first, pair), conversations)
    recorded_s, found = (time.process_time() - begin) / len(conversations), []
    conversations = conversations[:sample]
    for cfg in tqdm(configs, desc="methods", unit="cell"):
        cell = cell_of(cfg)
        live, replayed, ranked = (
            Decoding(cell, pair, replace(runtime, replay=kind), recordings if kind else None)
            for kind in (False, True, RANKS)
        )
        by_ranks = seconds(ranked, conversations) if goes_by_ranks(ranked.drafter) else None
        found.append(Cost(cell.method, seconds(live, conversations), seconds(replayed, conversations), by_ranks))
    return recorded_s, found


def seconds(decoding: Decoding, conversations: Sequence[Conversation]) -> float:
    """CPU seconds of all turns, each behind the method's own answers."""
    begin = time.process_time()
    for conversation in conversations:
        answers: list[str] = []
        for number in range(len(conversation.turns)):
            turn = decoding.turn(conversation, number, answers)
            answers.append(decoding.text(decoding.decode(turn, METHOD)))
    return time.process_time() - begin


def table(recorded_s: float, found: Sequence[Cost], scale: float) -> str:
    """Seconds by method over all its sizes, their sums, and how many times cheaper replays are."""
    lines = [f"{'CPU seconds':<22} {'decoded':>10} {'replayed':>10} {'by ranks':>10} {'ratio':>8}"]
    for method in dict.fromkeys(cost.method for cost in found):
        lines.append(_line(method, [cost for cost in found if cost.method == method], 0.0, scale))
    fixed = [cost for cost in found if cost.ranked_s is not None]
    lines.append(_line("recording", [], recorded_s, scale))
    lines.append(_line("fixed shapes", fixed, 0.0, scale))
    lines.append(_line("all, with recording", found, recorded_s, scale))
    return "\n".join(lines)


def _line(name: str, costs: Sequence[Cost], more_s: float, scale: float) -> str:
    live, replayed, best = (
        scale * sum(getattr(cost, key) for cost in costs) for key in ("live_s", "replayed_s", "best_s")
    )
    ranked = any(cost.ranked_s is not None for cost in costs)
    more = scale * more_s
    ratio = f"{live / (best + more):.1f}" if costs else ""
    shown = [f"{live:.1f}" if costs else "", f"{replayed + more:.1f}", f"{best + more:.1f}" if ranked else "", ratio]
    return f"{name:<22} {shown[0]:>10} {shown[1]:>10} {shown[2]:>10} {shown[3]:>8}"


def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    given = DEFAULTS | dict(argument.partition("=")[::2] for argument in arguments)
    sample, recorded, conversations = (int(given.pop(name)) for name in ("sample", "recorded", "conversations"))
    recorded, pair = max(sample, recorded), given.pop("pair")
    given.pop("results_dir", None)  # what is measured here is no result
    overrides = [f"{key}={value}" for key, value in given.items()]
    with composer() as compose, TemporaryDirectory() as folder:
        asked = ["experiment=bench/budget", "dataset=mt_bench", "decoding=greedy", f"size={','.join(map(str, SIZES))}"]
        places = [f"pair={pair}", f"results_dir={folder}", f"limit={recorded}", "runtime.num_threads=1"]
        _, jobs = sweep([*asked, *overrides, *places])
        configs = [cfg for job in jobs if is_run(cfg := compose(job)) and cfg.drafter.name != "autoregressive"]
        recorded_s, found = costs(configs, Path(folder), sample, recorded)
    print(f"{pair}: {len(found)} cells, {sample} conversations counted as {conversations}, recorded {recorded} at once")
    print(table(recorded_s * sample, found, conversations / sample))


if __name__ == "__main__":
    main(sys.argv[1:])
