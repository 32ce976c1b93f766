"""`python -m specdec_trees.prompts.export mt_bench gsm8k --out data`: datasets of the hub as files for `data_dir`.

Of each all conversations that a run may choose from. Cells of the file are others than those of the hub.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from specdec_trees.locations import yamls
from specdec_trees.names import unknown
from specdec_trees.prompts.conversations import DatasetError
from specdec_trees.prompts.datasets import CANDIDATES, DatasetSpec, load
from specdec_trees.results.parquet import replace_text


def config_of(name: str) -> dict[str, Any]:
    """What a dataset's yaml says, on top of those that its `defaults` name."""
    own: dict[str, Any] = dict(OmegaConf.load(yamls("dataset")[name]))
    for base in own.pop("defaults", ()):
        own = own if base == "_self_" else config_of(base) | own
    return {key: OmegaConf.to_container(value) if OmegaConf.is_config(value) else value for key, value in own.items()}


def export(name: str, folder: Path) -> str:
    """Write `<folder>/<name>.jsonl`, and say what it holds; DatasetError for a name of none, or where it is there."""
    names = [name for name in yamls("dataset") if "/" not in name]
    hub = {name: config for name in names if (config := config_of(name)).get("hub")}
    if name not in hub:
        raise DatasetError(unknown("dataset of the hub", name, hub))
    path, spec = folder / f"{name}.jsonl", DatasetSpec.from_config(hub[name])
    if path.exists():
        raise DatasetError(f"{path} is there already; delete it to write it anew")
    conversations = load(replace(spec, part="all"), limit=max(CANDIDATES, spec.limit or 0))
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(path, "".join(json.dumps(asdict(one), ensure_ascii=False) + "\n" for one in conversations))
    return f"{path}: {len(conversations)} conversations"


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 2 with a sentence for the first dataset that cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m specdec_trees.prompts.export", description=__doc__)
    parser.add_argument("datasets", nargs="+", help="names in conf/dataset")
    parser.add_argument("--out", type=Path, required=True, help="the folder that data_dir will name")
    given = parser.parse_args(arguments)
    try:
        for name in given.datasets:
            print(export(name, given.out))
    except DatasetError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
