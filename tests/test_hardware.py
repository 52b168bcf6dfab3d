"""Known devices are found by what the driver reports; capability questions are answered with a reason."""

from __future__ import annotations

import pytest

from labllm import hardware
from labllm.devices import GIB, KNOWN, spec_of

REPORTED = [
    ("NVIDIA H200", 140 * GIB, "H200"),
    ("NVIDIA H100 80GB HBM3", 80 * GIB, "H100"),
    ("NVIDIA A100-SXM4-80GB", 80 * GIB, "A100 80GB"),
    ("NVIDIA A100-PCIE-40GB", 40 * GIB, "A100 40GB"),
    ("NVIDIA A800-SXM4-80GB", 80 * GIB, "A800"),
    ("Tesla T4", 15 * GIB, "T4"),
    ("NVIDIA GeForce RTX 4090", 24 * GIB, "RTX 4090"),
    ("NVIDIA L4", 23 * GIB, "L4"),
]


@pytest.mark.parametrize(("name", "memory", "expected"), REPORTED)
def test_a_device_is_found_by_its_reported_name(name: str, memory: int, expected: str) -> None:
    spec = spec_of(name, memory)
    assert spec is not None and spec.name == expected


@pytest.mark.parametrize("name", ["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"])
def test_a_size_in_the_name_counts_more_than_the_memory(name: str) -> None:
    assert spec_of(name, 0).name == "A100 80GB"


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"],
)
def test_another_card_of_a_known_name_has_no_spec(name: str) -> None:
    assert spec_of(name, 24 * GIB) is None


@pytest.mark.parametrize("name", ["NVIDIA L40", "Tesla V100-SXM2-16GB", "AMD Instinct MI300X", ""])
def test_an_unknown_device_has_no_spec(name: str) -> None:
    assert spec_of(name, 16 * GIB) is None


def test_every_spec_is_plausible() -> None:
    for spec in KNOWN:
        assert 1e11 < spec.bandwidth < 1e13, spec.name
        assert spec.peak("float16") > spec.peak("float32"), spec.name
        assert (spec.peak("bfloat16") is None) == (spec.capability < (8, 0)), spec.name
        assert (spec.peak("float8") is None) == (spec.capability < (8, 9)), spec.name


def test_this_machine_is_described() -> None:
    machine = hardware.this_machine("cpu")
    assert machine.kind == "cpu" and machine.memory > 0 and machine.cores >= 1
    assert machine.slug == hardware.slug(machine.name)
    assert 0 < hardware.free_memory("cpu") <= machine.memory


def test_a_no_carries_its_reason() -> None:
    answer = hardware.can("cuda", "cpu")
    assert not answer and "NVIDIA GPU" in answer.reason
    assert hardware.can("bf16", "cpu")


def test_an_unknown_need_lists_the_known() -> None:
    with pytest.raises(ValueError, match="triton"):
        hardware.can("warp speed")


@pytest.mark.parametrize(
    ("triton", "gpu", "capability", "device", "mode"),
    [
        (False, True, (9, 0), "cuda", "absent"),
        (True, True, (9, 0), "cuda", "compiled"),
        (True, True, (7, 5), "cuda", "refused"),
        (True, False, None, "cpu", "interpreted"),
        (False, False, None, "cpu", "absent"),
    ],
)
def test_how_triton_runs(monkeypatch, triton, gpu, capability, device, mode) -> None:
    monkeypatch.setattr(hardware, "_has_triton", lambda: triton)
    monkeypatch.setattr(hardware.torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(hardware.torch.cuda, "get_device_capability", lambda: capability)
    assert hardware.triton_mode(device) == mode
    assert bool(hardware.can("triton", device)) == (mode in ("compiled", "interpreted"))
    assert bool(hardware.can("triton-compiled", device)) == (mode == "compiled")
    if mode == "refused":
        assert "8.0" in hardware.can("triton", device).reason


def test_slug_is_fit_for_a_file_name() -> None:
    assert hardware.slug("Intel(R) Xeon(R) @ 2.0GHz, 2 cores") == "intel-r-xeon-r-2-0ghz-2-cores"
