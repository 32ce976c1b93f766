"""Every name that a GPU gives itself against every string under `hardware` in the published numbers."""

import pytest

from specdec_trees import published
from specdec_trees.artifacts.devices import Device, parse, same_device
from specdec_trees.measure.provenance import _placed_name

UNNAMED = frozenset({"", "none", "unspecified"})
A100, A100_40 = frozenset({"A100"}), frozenset({"A100 40GB", "A100 40GB offload"})
L40, RTX_4090 = frozenset({"L40", "L40 offload"}), frozenset({"RTX 4090", "1x RTX 4090"})
L20, FOUR = frozenset({"1x L20"}), frozenset({"4x A100-PCIE-40GB"})
A6000 = frozenset({"RTX A6000"})
NAMES = {
    "NVIDIA A100-SXM4-40GB": A100 | A100_40,
    "A100-SXM4-40GB": A100 | A100_40,
    "NVIDIA A100-SXM4-80GB": A100,
    "NVIDIA A100 80GB PCIe": A100,
    "NVIDIA A100-PCIE-40GB": A100 | A100_40,
    "NVIDIA A100-SXM4-40GB MIG 3g.20gb": frozenset(),
    "NVIDIA A10": frozenset(),
    "NVIDIA A10G": frozenset(),
    "NVIDIA A800-SXM4-80GB": frozenset(),
    "NVIDIA H100 80GB HBM3": frozenset(),
    "NVIDIA H100 PCIe": frozenset(),
    "NVIDIA H200": frozenset(),
    "NVIDIA L40": L40,
    "NVIDIA L40S": frozenset(),
    "NVIDIA L20": L20,
    "NVIDIA L4": frozenset(),
    "NVIDIA L2": frozenset(),
    "NVIDIA GeForce RTX 4090": RTX_4090,
    "NVIDIA GeForce RTX 4090 D": frozenset(),
    "NVIDIA GeForce RTX 4090 Laptop GPU": frozenset(),
    "Tesla V100-SXM2-16GB": frozenset(),
    "NVIDIA RTX 6000 Ada Generation": frozenset(),
    "NVIDIA RTX A6000": A6000,
    "AMD EPYC 7763 64-Core Processor": frozenset(),
    "Intel(R) Xeon(R) Platinum 8480+": frozenset(),
    "Test CPU": frozenset(),
    "unknown": frozenset(),
    "": frozenset(),
    # as specdec_trees.measure.provenance says how the models share out several devices
    "4x NVIDIA A100-PCIE-40GB, device map auto": FOUR,
    "4x NVIDIA A100-PCIE-40GB, tensor parallel": FOUR,
    "4x NVIDIA A100-PCIE-40GB, device map auto, draft on cuda:1": FOUR,
    "4x NVIDIA A100 80GB PCIe, device map auto": frozenset(),
    "2x NVIDIA A100-PCIE-40GB, device map auto": frozenset(),
    "2x NVIDIA GeForce RTX 4090, tensor parallel": frozenset(),
    "NVIDIA L40, draft on cuda:1": frozenset(),
    "NVIDIA L40, device map auto": L40,
}
"""By name the strings that are the same device; all others are not."""


def test_the_names_and_the_papers_hardware() -> None:
    printed = {text for paper in published.papers() for text in published.load(paper)["hardware"]}
    named = A100 | A100_40 | L40 | RTX_4090 | A6000 | L20 | FOUR
    assert printed == UNNAMED | named  # what the table above was written for
    for name, expected in NAMES.items():
        assert {hardware for hardware in printed if same_device(name, hardware)} == expected, name


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NVIDIA A100-SXM4-80GB", Device("a100", 1, 80, "sxm")),
        ("A100-40G", Device("a100", 1, 40)),
        ("NVIDIA H100 80GB HBM3", Device("h100", 1, 80)),
        ("Tesla V100-SXM2-16GB", Device("v100", 1, 16, "sxm")),
        ("NVIDIA GH200 480GB", Device("gh200", 1, 96)),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", Device("a100 mig 3g.20gb", 1, 40, "sxm")),
        ("4x A100-PCIE-40GB", Device("a100", 4, 40, "pcie")),
        ("NVIDIA RTX 6000 Ada Generation", Device("rtx 6000 ada generation")),
        ("A100 40GB offload", Device("a100", 1, 40)),
        ("unspecified", None),
        ("", None),
    ],
)
def test_what_is_read_off_a_name(name: str, device: Device | None) -> None:
    assert parse(name) == device


@pytest.mark.parametrize(
    ("name", "terabytes_per_s", "teraflops"),
    [
        ("Tesla V100-SXM2-16GB", 0.9, 125),
        ("NVIDIA A100-SXM4-40GB", 1.555, 312),
        ("NVIDIA A100-PCIE-40GB", 1.555, 312),
        ("NVIDIA A100-SXM4-80GB", 2.039, 312),
        ("NVIDIA A100 80GB PCIe", 1.935, 312),
        ("NVIDIA H100 80GB HBM3", 3.35, 989),
        ("NVIDIA H100 PCIe", 2.0, 756),
        ("NVIDIA H100 NVL", 3.9, 835.5),
        ("NVIDIA H200", 4.8, 989),
        ("NVIDIA H200 NVL", 4.8, 835.5),
        ("NVIDIA GH200 480GB", 4.0, 989),
        ("NVIDIA GH200 120GB", 4.0, 989),
        ("NVIDIA GH200 144G HBM3e", 4.9, 989),
        ("NVIDIA B200", 7.7, 2250),
        ("NVIDIA L40S", 0.864, 362),
        ("NVIDIA GeForce RTX 4090", 1.008, 165.2),
        ("NVIDIA GeForce RTX 5090", 1.792, 209.5),
        # as papers and people write them
        ("A100-40G", 1.555, 312),
        ("4x A100-PCIE-40GB", 1.555, 312),
        ("A100 80GB", 1.935, 312),
        ("A100 80GB SXM", 2.039, 312),
        ("H100", 3.35, 989),
        ("H100 80GB", 3.35, 989),
        ("H100 80GB PCIe", 2.0, 756),
        ("GH200 96GB", 4.0, 989),
        ("L40 offload", 0.864, 181),
        ("RTX 4090", 1.008, 165.2),
    ],
)
def test_what_the_data_sheet_of_a_name_says(name: str, terabytes_per_s: float, teraflops: float) -> None:
    device = parse(name)
    assert device is not None
    assert device.card == published.Card(pytest.approx(terabytes_per_s * 1e12), pytest.approx(teraflops * 1e12))


@pytest.mark.parametrize(
    "name",
    [
        "A100",
        "GH200",
        "NVIDIA A10G",
        "NVIDIA H100 64GB HBM2",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA H100 PCIe MIG 1g.10gb",
    ],
)
def test_a_name_of_no_data_sheet_or_of_several_has_no_card(name: str) -> None:
    device = parse(name)
    assert device is not None
    assert device.card is None


def test_names_of_provenance_are_read() -> None:
    placed = _placed_name("NVIDIA L40", "cuda", {"tensor_parallel": 4, "draft_device": "cuda:1"})
    assert parse(placed) == Device("l40", 4)
    assert parse(_placed_name("NVIDIA L40", "cuda", {"draft_device": "cuda:1"})) == Device("l40", 2)
