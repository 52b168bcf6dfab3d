"""Every .cu file compiles for every architecture that it is for, without spills, and declares what the host assumes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from labllm import hardware
from labllm.bench import CannotRun
from labllm.cuda import GEMMS, Built, CompileError, build, source
from labllm.cuda import nvcc as building
from labllm.cuda.fused import FILE, THREADS
from labllm.cuda.kernels import HOPPER, PIPELINED, GemmKernel
from labllm.quantization import int4_cluster

FAST = os.environ.get("LABLLM_FAST") == "1"
ARCHITECTURES = {"sm_75": (7, 5), "sm_80": (8, 0), "sm_90a": (9, 0)}
FUSED = GemmKernel(FILE, (1, 1, 1), (THREADS,))


def needed() -> list[tuple[str, str, bool]]:
    """(file, architecture, bfloat16): both dtypes where they apply, in the fast setting the one that is used most."""
    found = []
    for kernel in (*GEMMS, FUSED):
        for name, capability in ARCHITECTURES.items():
            if kernel.capability <= capability and (not kernel.exactly or kernel.capability == capability):
                found.append((kernel.file, name, capability >= (8, 0)))
                if not FAST and capability >= (8, 0):
                    found.append((kernel.file, name, False))
    return found


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A compiler, and a cache that the tests of this file share. Without one they are left out, but not under CI=1."""
    if not hardware.nvcc():
        assert not os.environ.get("CI"), "the continuous integration must compile kernels/cuda: install nvcc there"
        pytest.skip(hardware.can("nvcc").reason)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABLLM_HOME", str(tmp_path_factory.mktemp("cuda")))
        yield


@pytest.mark.parametrize(("file", "architecture", "bfloat16"), needed())
def test_it_compiles_and_nothing_spills(file: str, architecture: str, bfloat16: bool, compiler: None) -> None:
    nothing_spills(build(file, architecture, bfloat16=bfloat16))


@pytest.mark.parametrize("buffers", [2, 3])
def test_fewer_buffers_compile_as_well(buffers: int, compiler: None) -> None:
    nothing_spills(build(PIPELINED.file, "sm_80", BUFFERS=buffers))


@pytest.mark.parametrize("tokens", int4_cluster.TOKENS[-1:] if FAST else int4_cluster.TOKENS)
@pytest.mark.parametrize(
    "other", [{}] if FAST else [{}, {"SCALES": 0, "ZEROS": 1}, {"SCALE_ROWS": 2, "bfloat16": False}]
)
def test_int4_products_are_not_serialised(tokens: int, other: dict[str, int], compiler: None) -> None:
    built = build("int4_cluster", "sm_90a", **{"bfloat16": True, "TOKENS": tokens, **other})
    nothing_spills(built)
    said = built.cubin.with_suffix(".txt").read_text(encoding="utf-8")
    assert "Potential Performance Loss" not in said, "a product waits for another, or setmaxnreg is ignored"
    granted = built.resources.registers * int4_cluster.THREADS
    assert granted >= registers_of_the_roles(), "nobody has so many registers to give"


def registers_of_the_roles() -> int:
    """What all threads of kernels/cuda/int4_cluster.cu hold once those that fetch gave theirs back."""
    said = re.findall(r"setmaxnreg\.(dec|inc)\.sync\.aligned\.u32 (\d+);", source("int4_cluster").read_text("utf-8"))
    each, consumers = {role: int(count) for role, count in said}, constants("int4_ring.cuh")["CONSUMERS"]
    return each["inc"] * consumers + each["dec"] * (int4_cluster.THREADS - consumers)


def nothing_spills(built: Built) -> None:
    assert built.cubin.read_bytes()[:4] == b"\x7fELF"
    assert 0 < built.resources.registers <= 255 and not built.resources.spills and built.resources.stack == 0


def test_what_was_built_is_found_again(compiler: None) -> None:
    first = build("gemm_naive", "sm_80")
    written = first.cubin.stat().st_mtime_ns
    again = build("gemm_naive", "sm_80")
    assert again == first and again.cubin.stat().st_mtime_ns == written
    assert build("gemm_naive", "sm_80", bfloat16=False).cubin != first.cubin


def test_a_source_is_read_again_when_it_has_changed(
    compiler: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = building._text
    monkeypatch.setattr(building, "source", lambda name: tmp_path / f"{name}.cu")
    monkeypatch.setattr(building, "_text", lambda path: reads.append(path.suffix) or read(path))
    (tmp_path / "one.cuh").write_text("constexpr int ONE = 1;\n")
    (tmp_path / "add.cu").write_text('#include "one.cuh"\nextern "C" __global__ void add(int* a) { a[0] += ONE; }\n')
    first = build("add", "sm_80")
    assert {".cu", ".cuh", ".txt"} == set(reads)
    reads.clear()
    assert build("add", "sm_80") == first and not reads
    (tmp_path / "one.cuh").write_text("constexpr int ONE = 2;\n")
    os.utime(tmp_path / "one.cuh", ns=(1, 1))
    assert build("add", "sm_80").cubin != first.cubin and ".cuh" in reads


def test_a_refusal_names_file_line_and_reason(compiler: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.cu").write_text('extern "C" __global__ void gemm(int* a) {\n    a[0] = nothing;\n}\n')
    monkeypatch.setattr(building, "source", lambda name: tmp_path / f"{name}.cu")
    with pytest.raises(CompileError, match=r'^nvcc could not compile broken.cu: broken.cu\(2\): error: .*"nothing"'):
        build("broken", "sm_80")


def test_without_a_compiler_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "nvcc", lambda: None)
    with pytest.raises(CannotRun, match="install the CUDA toolkit"):
        build("gemm_naive", "sm_80")


def test_unknown_files_and_architectures_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"no kernels/cuda/gemm_fast.cu; known are add_layer_norm_gelu, gemm_hopper"):
        build("gemm_fast", "sm_80")
    monkeypatch.setattr(hardware, "nvcc", lambda: "nvcc")
    with pytest.raises(ValueError, match="written like 'sm_80'"):
        build("gemm_naive", "hopper")


def constants(file: str) -> dict[str, int]:
    """The `constexpr int` of a .cu file or a header, which may use one another."""
    found: dict[str, int] = {}
    path = source("int4_cluster").with_name(file) if file.endswith(".cuh") else source(file)
    text = path.read_text(encoding="utf-8")
    found |= {name: int(value) for name, value in re.findall(r"^#define (\w+) (\d+)", text, re.MULTILINE)}
    for line in re.findall(r"^constexpr int ([^?;]+);", text, re.MULTILINE):
        if "sizeof" in line:
            continue
        for name, value in (part.split(" = ") for part in line.split(", ")):
            found[name] = eval(value.replace("/", "//"), {}, found)
    return found


@pytest.mark.parametrize("kernel", GEMMS[2:], ids=lambda kernel: kernel.file)
def test_host_and_source_agree_on_tiles(kernel: GemmKernel) -> None:
    said = constants(kernel.file)
    assert kernel.tile == (said["TILE_M"], said["TILE_N"], said["TILE_K"])
    assert kernel.threads == (said["THREADS"],)
    assert kernel.buffers == said.get("STAGES", 0)


def test_shared_memory_is_that_of_the_stages() -> None:
    said = constants("gemm_pipelined")
    stage = 2 * (said["TILE_M"] * said["A_PITCH"] + said["TILE_K"] * said["B_PITCH"])
    assert PIPELINED.dynamic_shared == said["STAGES"] * stage
    assert [PIPELINED.within(kib * 1024).buffers for kib in (64, 99, 163, 227)] == [2, 3, 4, 4]
    assert PIPELINED.within(99 * 1024).dynamic_shared <= 99 * 1024 and HOPPER.within(0) == HOPPER
    assert HOPPER.dynamic_shared + 1024 <= 227 * 1024, "a block of compute capability 9.0 gets 227 KiB"
    assert constants("gemm_tiled")["TILE"] == 32 and constants(FILE)["THREADS"] == THREADS


def test_host_and_source_agree_on_the_ring_of_int4_words() -> None:
    said = constants("int4_ring.cuh")
    ours = int4_cluster.ROWS, int4_cluster.STEP, int4_cluster.THREADS, int4_cluster.SHARED
    assert ours == (said["ROWS"], said["STEP"], said["THREADS"], said["ROOM"])


def test_headers_count_as_part_of_a_source() -> None:
    names = [path.name for path in building.with_includes(source("gemm_hopper"))]
    assert names == ["gemm_hopper.cu", "hopper.cuh", "order.cuh", "element.cuh"]
