"""Files by hub id or from a folder, and one sentence for why they cannot be had."""

import logging
import os
import re
import socket
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import torch
from huggingface_hub import constants, try_to_load_from_cache
from transformers import AutoConfig, AutoTokenizer, BitsAndBytesConfig

from specdec_core.errors import LoadError
from specdec_core.models.architectures import loader_of
from specdec_core.models.spec import ModelSpec

T = TypeVar("T")
log = logging.getLogger(__name__)
for _client in ("httpx", "httpx2"):  # the hub's; they tell of every request
    logging.getLogger(_client).setLevel(logging.WARNING)
# transformers would have a service convert each pickle that it loads, and open a pull request at its publisher's
os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
_PATIENCE_S = 1.0
_PAUSES_S = (1.0, 4.0)
_HUB_ID = r"[\w.-]+(/[\w.-]+)?"


def fetch(load: Callable[..., Any], spec: ModelSpec, **options: Any) -> Any:
    """`load(source, revision=...)`, such as a `from_pretrained`; LoadError says what may be wrong."""
    if re.fullmatch(_HUB_ID, spec.source) and not Path(spec.source).exists():
        work_offline_if_refused()
    try:
        return patiently(partial(load, spec.source, revision=spec.revision or "main", **options))
    except (MemoryError, torch.OutOfMemoryError, LoadError):
        raise
    except Exception as error:  # broken files raise errors of many libraries, without a common class
        raise LoadError(_reason(spec, error)) from error


def patiently(load: Callable[[], T]) -> T:
    """What `load` returns; a hub that is down or asked too often is asked again, twice, some seconds later."""
    for pause_s in _PAUSES_S:
        try:
            return load()
        except Exception as error:
            if not _is_busy(_status(error)):
                raise
        time.sleep(pause_s)
    return load()


def _status(error: BaseException | None) -> int | None:
    """What the hub answered, where that is why something failed."""
    while error is not None:
        if (response := getattr(error, "response", None)) is not None:
            return int(response.status_code)
        error = error.__cause__ or error.__context__
    return None


def _is_busy(status: int | None) -> bool:
    return status is not None and (status == 429 or status >= 500)


@dataclass
class _Hub:
    """What this process knows of the hub."""

    reached: bool = False
    given_up: bool = False
    """Offline by our own choice, which is looked at again with every model."""


_hub = _Hub()


def work_offline_if_refused() -> None:
    """Where the hub's address cannot be found or refuses, its client uses local files alone.

    The client would try again for twenty seconds, file after file. A slow answer is no refusal, and of what a proxy may
    reach nothing is known. The first refusal is asked for twice, a second apart.
    """
    if _hub.reached or (constants.HF_HUB_OFFLINE and not _hub.given_up):
        return
    if urllib.request.getproxies().keys() & {"http", "https", "all"}:
        return
    refused = _refused()
    if refused and not _hub.given_up:
        time.sleep(_PATIENCE_S)
        refused = _refused()
    if refused and not _hub.given_up:
        log.warning("%s cannot be reached: only files on this machine are used", constants.ENDPOINT)
    _hub.reached, _hub.given_up = not refused, refused
    constants.HF_HUB_OFFLINE = refused


def _refused() -> bool:
    """Whether connecting to the hub fails at once."""
    url = urlsplit(constants.ENDPOINT)
    address = url.hostname or "", url.port or (80 if url.scheme == "http" else 443)
    try:
        socket.create_connection(address, _PATIENCE_S, all_errors=True).close()
    except OSError:
        return True
    except ExceptionGroup as failures:  # one for each of its addresses
        return not any(isinstance(failure, TimeoutError) for failure in failures.exceptions)
    return False


def fetch_config(spec: ModelSpec, **options: Any) -> Any:
    """The model's config.json. `options` are those of transformers' loader.

    LoadError for an adapter: transformers would load its model with or without it, as peft is installed or not.
    """
    if _has(spec, "adapter_config.json"):
        raise LoadError(
            f"{spec.source} is a PEFT adapter, not a model: merge it into its model, by "
            "PeftModel.from_pretrained(model, adapter).merge_and_unload().save_pretrained(folder), and give that folder"
        )
    return fetch(AutoConfig.from_pretrained, spec, trust_remote_code=False, **options)


def fetch_tokenizer(spec: ModelSpec) -> Any:
    """The model's tokenizer."""
    return fetch(AutoTokenizer.from_pretrained, spec, trust_remote_code=False)


def _has(spec: ModelSpec, name: str) -> bool:
    """Whether such a file lies in the folder, or on this machine in the hub's cache."""
    if Path(spec.source).exists() or not re.fullmatch(_HUB_ID, spec.source):
        return (Path(spec.source) / name).is_file()
    return isinstance(try_to_load_from_cache(spec.source, name, revision=spec.revision or "main"), str)


def fetch_weights(spec: ModelSpec, **options: Any) -> Any:
    """The model, all of it: transformers would fill what a checkpoint lacks with random numbers and only log that."""
    options |= {"output_loading_info": True, "trust_remote_code": False}
    model, info = fetch(loader_of(fetch_config(spec)).from_pretrained, spec, **options)
    if missing := sorted(info["missing_keys"]):
        raise LoadError(
            f"the weights of {spec.id} lack {len(missing)} tensors that its config.json asks for (such as "
            f"{missing[0]}); fetch the model again, or correct the config"
        )
    return model


def _reason(spec: ModelSpec, error: Exception) -> str:
    text = " ".join(str(error).split())
    if "trust_remote_code" in text:
        return (
            f"{spec.source} brings code of its own (auto_map), which is never run here: give a version of the model "
            "that transformers has a class for, or convert it to one, without auto_map in its config.json and "
            "tokenizer_config.json"
        )
    if _is_gguf(Path(spec.source)):
        return (
            f"{spec.source} holds a model as GGUF, which is not read here: give the folder of its original weights, or "
            "convert it (from_pretrained(folder, gguf_file=...), then save_pretrained, of model and tokenizer)"
        )
    if Path(spec.source).is_file():
        return f"{spec.source} is a file; give the folder that holds it"
    if Path(spec.source).exists() and (isinstance(error, ImportError) or "device_map" in text):
        return f"{spec.source} cannot be loaded as asked: {text[:200]}"
    if Path(spec.source).exists():
        return f"the folder {spec.source} does not hold a loadable model: {text[:200]}"
    return _reason_of_hub(spec, error, text)


def _reason_of_hub(spec: ModelSpec, error: Exception, text: str) -> str:
    """Why what is no folder cannot be had."""
    if "not a valid model identifier" in text:
        return (
            f"{spec.id} is no model on {constants.ENDPOINT}, or one that you may not see: check its name; if it is "
            "private, log in with `hf auth login`"
        )
    if re.search(r"gated repo|40[13] Client Error", text):
        return f"{spec.id} is gated: accept its licence on its hub page and log in with `hf auth login`"
    if "not appear to have a file named config.json" in text:
        return (
            f"{spec.id} has no config.json: if it is an adapter, merge it into its model; if it is GGUF, take the "
            "original weights; then give that id or folder"
        )
    if _is_busy(status := _status(error)):
        return f"{spec.id} cannot be fetched now: {constants.ENDPOINT} answers {status}; try again later"
    if not isinstance(error, OSError):  # as the errors of the hub's client are
        return f"{spec.id} cannot be loaded as asked: {text[:200]}"
    hint = " (it is gated: its licence must be accepted first)" if spec.gated else ""
    return (
        f"{spec.id}{hint} is not on this machine and cannot be fetched; download it where there is a network, or give "
        f"a folder with its files as the model's id ({type(error).__name__})"
    )


def _is_gguf(path: Path) -> bool:
    """Whether weights are there as GGUF alone."""
    suffixes = {path.suffix} | {file.suffix for file in path.glob("*")}
    return ".gguf" in suffixes and not suffixes & {".safetensors", ".bin"}


def quantisation(spec: ModelSpec, dtype: torch.dtype) -> dict[str, Any]:
    """What `from_pretrained` is given for a model of few bits."""
    if spec.bits is None:
        return {}
    if spec.bits == 8:
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": config}
