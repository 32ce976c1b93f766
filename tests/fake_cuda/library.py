"""The compiled half of the device, kept by its sources and by torch's version."""

import ctypes
import hashlib
import importlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
HEADERS = sorted(Path(__file__).parent.glob("*.h"))
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "specdec-fake-cuda" / platform.machine()


def unavailable() -> str | None:
    """Why there is no fake device here; None where there may be one."""
    if sys.platform != "linux":
        return f"the fake CUDA device is for Linux, not for {sys.platform}"
    if shutil.which("g++") is None:
        return "no g++ to compile the fake CUDA device with"
    if (_torch() / "lib" / "libtorch_cuda.so").exists():
        return "this torch is built for CUDA: the fake device is for CPU builds"
    return None


@cache
def library() -> ctypes.CDLL:
    """The device; loaded once, and torch behind it.

    RuntimeError if torch is there already: it looks for a device's hooks once, while it is loaded.
    """
    if "torch" in sys.modules:
        raise RuntimeError("the fake CUDA device is to be loaded before torch")
    loaded = ctypes.CDLL(str(built(_torch())), ctypes.RTLD_GLOBAL)
    loaded.fake_allocated.restype = loaded.fake_peak.restype = ctypes.c_int64
    loaded.fake_seed.argtypes = [ctypes.c_int, ctypes.c_uint64]
    importlib.import_module("torch._dynamo")  # told of a GPU while it is imported, it asks for what a CPU build lacks
    return loaded


def built(torch: Path) -> Path:
    """The file of it for that torch; compiled once, in half a minute."""
    version = (torch / "version.py").read_bytes()
    digest = hashlib.sha256(b"".join([version, *(path.read_bytes() for path in (*SOURCES, *HEADERS))])).hexdigest()
    file = CACHE / f"{digest[:16]}.so"
    if not file.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as folder:
            compiled(torch, Path(folder)).rename(file)
    for name in ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(torch / "lib" / name), ctypes.RTLD_GLOBAL)
    return file


def compiled(torch: Path, folder: Path) -> Path:
    """All sources at once, each by a process of its own."""
    include = [f"-I{torch / 'include'}", f"-I{torch / 'include/torch/csrc/api/include'}"]
    flags = ["g++", "-std=c++20", "-O0", "-fPIC", "-w", *include]
    objects = [folder / f"{source.stem}.o" for source in SOURCES]
    running = [
        subprocess.Popen([*flags, "-c", str(source), "-o", str(made)])
        for source, made in zip(SOURCES, objects, strict=True)
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError("the fake CUDA device does not compile: see above")
    linked = folder / "fake.so"
    link = [f"-L{torch / 'lib'}", "-lc10", "-ltorch_cpu"]
    subprocess.run(["g++", "-shared", *map(str, objects), "-o", str(linked), *link], check=True)
    return linked


def _torch() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec
    assert spec.origin
    return Path(spec.origin).parent
