"""Ways of decoding on the fake device, and what a step of each asks for: `counts.csv`.

    PYTHONPATH=tests python -m fake_cuda

writes launches, waits and uploads of a step by phase anew, for the torch that is installed.
"""

import sys
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd
import torch
from cells import config
from discovered import NAMES, built, parameters, rule_for
from tqdm import tqdm

from fake_cuda.phases import counted, per_step
from specdec_core import Sampling
from specdec_core.models import Pair, load_pair
from specdec_core.verifiers import Verifier
from specdec_trees.configs.cells import cell_of

COUNTS = Path(__file__).parent / "counts.csv"
PROMPT = "def read_config(filename):\n"
SIZES = (25, 60, 127)
HEADS = {
    "tiny_eagle": ("opt_tree", "eagle2", "sequoia", "chain4"),
    "tiny_eagle3": ("opt_tree", "eagle2"),
    "tiny_medusa": ("opt_tree", "binary"),
    "tiny_self": ("opt_tree", "chain4"),
}
SIZED = [name for name in NAMES if name.startswith("sized_") and "kary" not in name and "sequences" not in name]


@dataclass(frozen=True)
class Case:
    """One way of decoding the prompt."""

    drafter: str
    temperature: float
    pair: str = "tiny"
    size: int | None = None

    def __str__(self) -> str:
        size = "" if self.size is None else f"-{self.size}"
        return f"{self.pair}-{self.drafter}{size}-T{self.temperature:g}"


CASES = [
    *(Case(name, temperature) for name in NAMES for temperature in (0.0, 0.7)),
    *(Case(name, temperature, pair) for pair, names in HEADS.items() for name in names for temperature in (0.0, 0.7)),
    *(Case(name, temperature, size=size) for name in SIZED for size in SIZES for temperature in (0.0, 0.7)),
]


@cache
def loaded(name: str, device: str) -> Pair:
    spec = cell_of(config(f"pair={name}")).pair
    return load_pair(spec.target, spec.draft, device=device, dtype="float32")


def decoded(case: Case, device: str, rule: Verifier | None = None) -> tuple[list[int], dict[str, float]]:
    """Tokens, and what a step asked for in the mean."""
    pair = loaded(case.pair, device)
    decoding = "greedy" if case.temperature == 0 else f"t{case.temperature:g}".replace(".", "")
    drafter = built(parameters(case.drafter, decoding=decoding, largest=max(SIZES), size=case.size), pair.draft)
    done, counts = counted(
        pair.target,
        drafter,
        rule or rule_for(drafter),
        pair.tokenizer(PROMPT)["input_ids"],
        max_new_tokens=12,
        sampling=Sampling(case.temperature),
        allow_lossy=True,
    )
    return done.tokens, per_step(len(done.steps), counts)


def warm() -> None:
    """Have what is made once for a device made before anything is counted."""
    decoded(Case("opt_tree", 0.0), "cuda")


def digest(tokens: list[int]) -> str:
    """A short name for a text: another one may have other trees, and counts that say nothing of each other."""
    return f"{zlib.crc32(str(tokens).encode()):08x}"


def write() -> None:
    """Write what every case asks for."""
    warm()
    rows = [
        {"case": str(case), "torch": torch.__version__, "tokens": digest(tokens), **asked}
        for case in tqdm(CASES, file=sys.stderr)
        for tokens, asked in [decoded(case, "cuda")]
    ]
    pd.DataFrame(rows).to_csv(COUNTS, index=False)
