"""What `torch.cuda` lacks in a CPU build: devices, streams and events of the fake device."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch

from fake_cuda.counting import happened, set_sync_mode, sync_mode
from fake_cuda.library import library

MEMORY = 80 * 2**30
PROPERTIES = SimpleNamespace(
    name="fake CUDA device",
    major=9,
    minor=0,
    total_memory=MEMORY,
    multi_processor_count=132,
    warp_size=32,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 * 2**20,
    uuid="0",
    gcnArchName="",
)


def index_of(device: Any = None) -> int:
    """The number of a device, of the current one where it has none."""
    index = device if isinstance(device, int) else None if device is None else torch.device(device).index
    return library().fake_device() if index is None or index < 0 else index


def exchanged(device: Any) -> int:
    """Make a device the current one; the number of the one before."""
    before = library().fake_device()
    library().fake_set_device(device if isinstance(device, int) else index_of(device))
    return before


def allocated(device: Any = None) -> int:
    """Bytes of tensors that are alive."""
    return library().fake_allocated(index_of(device))


def peak(device: Any = None) -> int:
    """The most bytes at once since the last reset."""
    return library().fake_peak(index_of(device))


def synchronize(device: Any = None) -> None:
    """Wait for a device."""
    happened("sync", "synchronize")


class Stream(torch.Stream):
    """A stream in name: everything has happened already."""

    def __new__(cls, device: Any = None, priority: int = 0, **ids: Any) -> Any:
        return super().__new__(cls, torch.device("cuda", index_of(device)))

    def __init__(self, device: Any = None, priority: int = 0, **ids: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def wait_stream(self, stream: Any) -> None: ...
    def synchronize(self) -> None:
        synchronize()

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event


class Event:
    """A moment of the host's clock, of one device."""

    def __init__(self, enable_timing: bool = False, **options: Any) -> None:
        self.enable_timing = enable_timing
        self.at: float | None = None
        self.device: torch.device | None = None

    def record(self, stream: Any = None) -> None:
        device = torch.device("cuda", index_of()) if stream is None else stream.device
        if self.device not in (None, device):
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {device}.")
        self.at, self.device = time.perf_counter(), device

    def wait(self, stream: Any = None) -> None: ...
    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        happened("sync", "Event.synchronize")

    def elapsed_time(self, end: "Event") -> float:
        if not (self.enable_timing and end.enable_timing) or self.at is None or end.at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        if self.device != end.device:
            raise RuntimeError("invalid resource handle: the events are of two devices")
        return (end.at - self.at) * 1e3


@contextmanager
def in_stream(stream: Any) -> Iterator[None]:
    """Nothing changes: there is one order of events."""
    yield


def install() -> None:
    """Put these in the place of a CPU build's."""
    names = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "_lazy_init": lambda: None,
        "_is_compiled": lambda: True,
        "_is_in_bad_fork": lambda: False,
        "device_count": lambda: library().fake_count(),
        "current_device": lambda: library().fake_device(),
        "set_device": lambda device: exchanged(device) and None,
        "_exchange_device": exchanged,
        "_maybe_exchange_device": lambda device: exchanged(device),  # dynamo wants two functions
        "Stream": Stream,
        "Event": Event,
        "stream": in_stream,
        "current_stream": Stream,
        "default_stream": Stream,
        "is_current_stream_capturing": lambda: False,
        "synchronize": synchronize,
        "set_sync_debug_mode": set_sync_mode,
        "get_sync_debug_mode": sync_mode,
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_name": lambda device=None: PROPERTIES.name,
        "get_device_capability": lambda device=None: (PROPERTIES.major, PROPERTIES.minor),
        "get_arch_list": lambda: ["sm_90"],
        "is_bf16_supported": lambda *options, **more: True,
        "mem_get_info": lambda device=None: (MEMORY - allocated(device), MEMORY),
        "memory_allocated": allocated,
        "memory_reserved": allocated,
        "max_memory_allocated": peak,
        "max_memory_reserved": peak,
        "reset_peak_memory_stats": lambda device=None: library().fake_reset_peak(index_of(device)),
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "get_rng_state": lambda device=None: torch.zeros(0, dtype=torch.uint8),  # dynamo keeps it while it traces
        "set_rng_state": lambda state, device=None: None,
    }
    for name, value in names.items():
        setattr(torch.cuda, name, value)
    for name in ("mem_get_info", "memory_reserved", "empty_cache"):
        setattr(torch.cuda.memory, name, names[name])
    for module in (torch.cuda, torch.cuda.random):
        module.manual_seed = lambda seed: library().fake_seed(index_of(), seed)
        module.manual_seed_all = lambda seed: [
            library().fake_seed(index, seed) for index in range(library().fake_count())
        ]
    torch.backends.cuda.is_built = lambda: True
    for name in ("_cuda_CUDAAllocator_AllocatorState", "_set_cached_tensors_enabled"):
        setattr(torch._C, name, lambda *_: None)  # what `torch._dynamo.reset` imports then
