"""The fake device is a device: the CPU's numbers, a GPU's refusals, and every wait that a GPU would have."""

import pytest
import torch

from fake_cuda.counting import counting

DEVICE = torch.device("cuda", 0)
pytestmark = pytest.mark.fake_gpu


def values(*shape: int, device: object = DEVICE) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(device)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x @ x.T,
        lambda x: x.softmax(-1).log(),
        lambda x: x.sort(-1, descending=True).values,
        lambda x: x.topk(3).indices,
        lambda x: x[x > 0],
        lambda x: x.cumsum(0).flatten()[2:9],
        lambda x: torch.cat([x[:2], x.transpose(0, 1)[:2, :7].contiguous()], -1) if x.shape[0] == 7 else x.sum(),
        lambda x: x.clone().index_add_(0, torch.tensor([1, 1], device=x.device), x[:2]),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]),
        lambda x: torch.where(x > 0, x, 0.5).masked_fill(x > 1, torch.inf).nan_to_num(),
        lambda x: torch.multinomial(x.abs(), 2, generator=torch.Generator(x.device).manual_seed(1)),
    ],
)
def test_results_are_the_cpus(compute):
    on_cpu, on_device = compute(values(5, 7, device="cpu")), compute(values(5, 7))
    assert on_device.device == DEVICE
    assert torch.equal(on_cpu, on_device.cpu())


def test_a_view_is_the_same_memory_and_a_copy_is_not():
    x = values(4, 6)
    x[1:3].transpose(0, 1)[0] = 9.0
    x.clone().zero_()
    expected = values(4, 6, device="cpu")
    expected[1:3, 0] = 9.0
    assert torch.equal(x.cpu(), expected)


@pytest.mark.parametrize(
    "mix",
    [
        lambda x: x + torch.ones(3),
        lambda x: x + torch.ones(3, device="cuda:1"),
        lambda x: torch.cat([x, torch.ones(3, device="cuda:1")]),
        lambda x: x[torch.tensor([0, 1], device="cuda:1")],
        lambda x: x.index_select(0, torch.tensor([0, 1])),
        lambda x: torch.multinomial(x.abs(), 1, generator=torch.Generator()),
    ],
)
def test_operands_of_several_devices_are_refused(mix):
    with pytest.raises((RuntimeError, IndexError)):
        mix(values(3))


def test_a_number_on_the_host_is_no_operand_of_another_device():
    x = values(3)
    assert torch.equal((x * torch.tensor(2.0)).cpu(), 2 * x.cpu())
    x[0] = 1.5
    assert float(x[0]) == 1.5


WAITING = {
    "a value": lambda x: float(x[0]),
    "a condition": lambda x: bool(x.sum() > 0),
    "a list": lambda x: x.tolist(),
    "a copy to the host": lambda x: x.cpu(),
    "a copy to the device": lambda x: torch.ones(3).to(x.device),
    "an upload of pageable memory": lambda x: torch.ones(3).to(x.device, non_blocking=True),
    "a new tensor of a list": lambda x: torch.tensor([1.0, 2.0], device=x.device),
    "a number that is put in a place": lambda x: x.__setitem__(0, torch.tensor(3.0)),
    "a mask": lambda x: x[x > 0],
    "where": lambda x: x.nonzero(),
    "the number of different values": lambda x: x.unique(),
    "an event": lambda x: torch.cuda.Event().synchronize(),
    "everything": lambda x: torch.cuda.synchronize(),
}
GOING_ON = {
    "arithmetic": lambda x: (x * 2).sum(),
    "a slice that is filled": lambda x: x[:1].fill_(3.0),
    "an asynchronous upload": lambda x: torch.ones(3).pin_memory().to(x.device, non_blocking=True),
    "a download to pinned memory": lambda x: torch.empty(3).pin_memory().copy_(x, non_blocking=True),
    "indices on the device": lambda x: x[torch.zeros(2, dtype=torch.long, device=x.device).fill_(1)],
    "random numbers": lambda x: torch.rand(3, device=x.device),
}


@pytest.mark.parametrize("name", [*WAITING, *GOING_ON])
def test_waits_are_counted_warned_of_and_forbidden(name):
    x, work = values(3), {**WAITING, **GOING_ON}[name]
    with counting() as counts:
        work(x)
    assert bool(counts.waits) == (name in WAITING)
    torch.cuda.set_sync_debug_mode("error")
    try:
        if name in GOING_ON or name in ("an event", "everything"):  # CUDA's mode is of operators alone
            work(x)
        else:
            with pytest.raises(RuntimeError):
                work(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_launches_and_lines_are_counted_and_views_are_none():
    x = values(4, 4)
    with counting() as outer, counting() as inner:
        x.t()[1:].reshape(-1)
        (x + 1).relu()
    assert inner.launches == outer.launches == 3  # what reshape copies, add, relu
    assert inner.where("launch").total() + inner.where("d2d").total() == 3
    with counting() as nothing:
        x.t()[1:]
    assert nothing.launches == nothing.waits == 0


def test_memory_is_counted_where_it_lies_and_given_back():
    before = [torch.cuda.memory_allocated(index) for index in (0, 1)]
    torch.cuda.reset_peak_memory_stats(1)
    x = torch.zeros(1000, device="cuda:1")
    assert [torch.cuda.memory_allocated(index) - there for index, there in enumerate(before)] == [0, x.nbytes]
    del x
    assert torch.cuda.memory_allocated(1) == before[1]
    assert torch.cuda.max_memory_allocated(1) - before[1] >= 4000


def test_unwritten_memory_is_not_zero():
    assert (torch.empty(100, dtype=torch.uint8, device=DEVICE) == 0xAB).all()


def test_devices_have_random_numbers_of_their_own():
    first = torch.rand(3, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(1))
    torch.manual_seed(7)
    again = torch.rand(3, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(1))
    assert torch.equal(first, again)
    torch.cuda.manual_seed(5)
    one = torch.rand(3, device=DEVICE)
    torch.cuda.manual_seed(5)
    assert torch.equal(torch.rand(3, device=DEVICE), one)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cudnn", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_is_what_a_hopper_card_prefers(dtype, cudnn, masked):
    q = values(1, 2, 8, 16).to(dtype)
    mask = torch.zeros(8, 8, dtype=dtype, device=DEVICE) if masked else None
    half = dtype != torch.float32
    expected = "cudnn" if cudnn and half else "flash" if half and not masked else "efficient"
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    try:
        with counting() as counts:
            out = torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
    assert {name.split()[0] for name in counts.where("launch") if "attention" in name} == {f"attention.{expected}"}
    assert torch.equal(out.cpu(), torch.nn.functional.scaled_dot_product_attention(*[q.cpu()] * 3, attn_mask=None))
