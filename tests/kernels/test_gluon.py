"""The Gluon kernels without a GPU: their source runs on threads, against a small stand-in for Gluon.

What such a kernel gets wrong is who waits for whom. So the stand-in is about waiting: barriers count arrivals and
bytes and have phases, copies arrive late, and a product reads its operands both when it is asked for and when it is
waited for: if they differ, somebody overwrote a tile that was in use. A wait that never ends fails the test.
Arithmetic is torch's; layouts are ignored.
"""

from __future__ import annotations

import importlib.util
import random
import sys
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from labllm.bench import TOLERANCE, relative_error

pytest.importorskip("triton")
PATIENCE = 20.0  # seconds after which a wait is a deadlock
here = threading.local()  # what differs from thread to thread: products in flight


class Barrier:
    """An mbarrier: a phase ends when `count` arrivals and all expected bytes are in."""

    def __init__(self) -> None:
        self.changed = threading.Condition()

    def init(self, count: int) -> None:
        self.count, self.missing, self.bytes, self.ended = count, count, 0, 0

    def arrive(self, arrivals: int, nbytes: int) -> None:
        with self.changed:
            self.missing, self.bytes = self.missing - arrivals, self.bytes + nbytes
            assert self.missing >= 0, "more arrivals than the barrier was made for"
            if not self.missing and not self.bytes:
                self.missing, self.ended = self.count, self.ended + 1
                self.changed.notify_all()

    def wait(self, phase: int) -> None:
        assert phase in (0, 1)
        with self.changed:
            assert self.changed.wait_for(lambda: self.ended % 2 != phase, PATIENCE), "a wait never ended"


class Shared:
    """Shared memory: a tensor, starting as NaN, or an array of barriers."""

    def __init__(self, data: Any) -> None:
        self.data = data

    dtype = property(lambda self: self.data.dtype)
    shape = property(lambda self: list(self.data.shape))

    def index(self, i: int) -> Any:
        return self.data[int(i)] if isinstance(self.data, list) else Shared(self.data[int(i)])

    def reshape(self, shape: list[int]) -> Shared:
        return Shared(self.data.view(shape))

    def permute(self, order: list[int]) -> Shared:
        return Shared(self.data.permute(order))

    def store(self, value: Tensor) -> None:
        self.data.copy_(value)


class Product:
    """a b + acc, asked for but not there; both operands must stay as they are until it is."""

    def __init__(self, a: Any, b: Shared, acc: Any) -> None:
        self.a, self.b, self.acc = a, b, acc
        self.asked = self._operands()
        here.flying.append(self)

    def _operands(self) -> tuple[Tensor, Tensor]:
        return tuple(x.data.clone() if isinstance(x, Shared) else x for x in (self.a, self.b))

    def finish(self) -> None:
        now = self._operands()
        assert all(torch.equal(x, y) for x, y in zip(self.asked, now, strict=True)), "a tile changed while in use"
        self.value = now[0].float() @ now[1].float() + self.acc


def warpgroup_mma(a: Any, b: Shared, acc: Tensor, use_acc: bool = True, is_async: bool = False) -> Product:
    assert is_async
    return Product(a, b, acc if use_acc else 0)


def warpgroup_mma_wait(n: int, deps: list[Any]) -> Any:
    while len(here.flying) > n:
        here.flying.pop(0).finish()
    done = [x.value if isinstance(x, Product) else x for x in deps]
    return done[0] if len(done) == 1 else tuple(done)


class Descriptor:
    def __init__(self, x: Tensor, block: list[int]) -> None:
        self.x, self.dtype, self.layout = x, x.dtype, None
        nbytes = x.element_size() * block[-1] * block[-2]
        self.block_type = SimpleNamespace(shape=block, nbytes=nbytes)

    def tile(self, at: list[Any]) -> Tensor:
        b, h, row, _ = (int(i) for i in at)
        return self.x[b, h, row : row + self.block_type.shape[2]]


def copy_in(source: Descriptor, at: list[Any], barrier: Barrier, to: Shared) -> None:
    tile = source.tile(at)

    def late() -> None:
        time.sleep(random.random() * 2e-3)
        to.data.zero_()
        to.data[0, 0, : len(tile)] = tile
        barrier.arrive(0, -source.block_type.nbytes)

    to.data.fill_(float("nan"))
    threading.Thread(target=late).start()


def copy_out(to: Descriptor, at: list[Any], source: Shared) -> None:
    tile = to.tile(at)
    tile.copy_(source.data[0, 0, : len(tile)])


class Launcher:
    """A decorated function: callable by others, launched with a grid."""

    grid, program = (1,), 0

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)

    def __getitem__(self, grid: tuple[int]) -> Any:
        def launch(*args: Any, num_warps: int, **constants: Any) -> None:
            Launcher.grid = grid
            for Launcher.program in range(grid[0]):
                self.fn(*args, **constants)

        return launch


def jit(fn: Any = None, **_: Any) -> Any:
    return Launcher(fn) if fn else Launcher


def warp_specialize(parts: list[Any], warps: list[int], registers: tuple[int, ...]) -> None:
    assert len(parts) == len(warps) + 1 == len(registers) + 1
    failures: list[BaseException] = []

    def part(fn: Any, args: tuple[Any, ...]) -> None:
        here.flying = []
        try:
            fn(*args)
            assert not here.flying, "a product was never waited for"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=part, args=one, daemon=True) for one in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    if failures:
        raise failures[0]


def allocate(dtype: Any, shape: list[int], layout: Any = None) -> Shared:
    return Shared(
        torch.full(shape, float("nan"), dtype=dtype) if dtype != torch.int64 else [Barrier() for _ in range(shape[0])]
    )


def language() -> ModuleType:
    gl = ModuleType("triton.experimental.gluon.language")
    scalar = lambda n: torch.tensor(n, dtype=torch.int32)  # noqa: E731
    tensor = lambda x: torch.as_tensor(x)  # noqa: E731
    gl.__dict__.update(
        constexpr=lambda x: x, static_range=range, int64=torch.int64, int32=torch.int32, float32=torch.float32,
        bfloat16=torch.bfloat16, float16=torch.float16, program_id=lambda axis: scalar(Launcher.program),
        num_programs=lambda axis: scalar(Launcher.grid[0]), allocate_shared_memory=allocate,
        zeros=lambda shape, dtype, layout=None: torch.zeros(shape, dtype=dtype), zeros_like=torch.zeros_like,
        full=lambda shape, value, dtype, layout=None: torch.full(shape, value, dtype=dtype),
        arange=lambda a, b, layout=None: torch.arange(a, b), max=lambda x, axis: x.amax(axis),
        sum=lambda x, axis: x.sum(axis), exp2=torch.exp2,
        where=lambda c, a, b: torch.where(tensor(c), a, b), convert_layout=lambda x, layout: x,
        maximum=lambda a, b: torch.maximum(tensor(a), tensor(b)),
        minimum=lambda a, b: torch.minimum(tensor(a), tensor(b)),
        SliceLayout=lambda *a: None, NVMMADistributedLayout=lambda *a: None, DotOperandLayout=lambda *a: None,
        NVMMASharedLayout=SimpleNamespace(get_default_for=lambda *a: None), warp_specialize=warp_specialize,
    )  # fmt: skip
    return gl


def modules() -> dict[str, ModuleType]:
    """The stand-ins by the names under which the kernels import them."""
    gl, gluon, hopper = language(), ModuleType("triton.experimental.gluon"), ModuleType("hopper")
    gluon.jit, gluon.language = jit, gl
    hopper.mbarrier = SimpleNamespace(
        init=lambda bar, count: bar.init(count), arrive=lambda bar: bar.arrive(1, 0), MBarrierLayout=lambda: None,
        expect=lambda bar, nbytes: bar.arrive(1, nbytes),
        wait=lambda bar, phase, pred=True: pred and bar.wait(int(phase)),
    )  # fmt: skip
    hopper.tma = SimpleNamespace(
        async_copy_global_to_shared=copy_in, async_copy_shared_to_global=copy_out, store_wait=lambda n: None
    )
    hopper.warpgroup_mma, hopper.warpgroup_mma_wait = warpgroup_mma, warpgroup_mma_wait
    hopper.fence_async_shared = lambda: None
    host = ModuleType("triton.experimental.gluon.nvidia.hopper")
    host.TensorDescriptor = SimpleNamespace(from_tensor=lambda x, block, layout: Descriptor(x, block))
    experimental = ModuleType("triton.experimental")
    experimental.gluon = gluon
    name = "triton.experimental.gluon"
    return {
        "triton.experimental": experimental, name: gluon, f"{name}.language": gl,
        f"{name}.language.nvidia": ModuleType("nvidia"), f"{name}.language.nvidia.hopper": hopper,
        f"{name}.nvidia": ModuleType("nvidia"), f"{name}.nvidia.hopper": host,
    }  # fmt: skip


@pytest.fixture
def kernels(root, monkeypatch) -> SimpleNamespace:
    """The Gluon kernels of this project, loaded against the stand-ins."""
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    package = ModuleType("on_threads")
    package.__path__ = [str(root / "kernels")]
    monkeypatch.setitem(sys.modules, "on_threads", package)
    loaded = {}
    for name in ("hopper", "flash_gluon", "flash_persistent"):
        spec = importlib.util.spec_from_file_location(f"on_threads.{name}", root / "kernels" / f"{name}.py")
        loaded[name] = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, f"on_threads.{name}", loaded[name])
        spec.loader.exec_module(loaded[name])
    return SimpleNamespace(**loaded)


def plainly(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    k, v = (x.double().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q.double() @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v


def run(kernels: SimpleNamespace, form: str, q: Tensor, k: Tensor, v: Tensor, causal: bool, stages: int) -> Tensor:
    out = torch.full_like(q, float("nan"))
    if form == "gluon":
        kernels.flash_gluon.flash_gluon(out, q, k, v, causal, 2, 32, stages)
    else:
        kernels.flash_persistent.flash_persistent(out, q, k, v, causal, 2, 32, stages, 3)
    return out


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [(1, 1), (130, 130), (70, 200), (128, 128)])
@pytest.mark.parametrize("form", ["gluon", "persistent"])
def test_who_waits_for_whom(kernels, form: str, lengths: tuple[int, int], causal: bool, stages: int) -> None:
    torch.manual_seed(0)
    q = torch.randn(2, 4, lengths[0], 64, dtype=torch.float16)
    k, v = torch.randn(2, 2, 2, lengths[1], 64, dtype=torch.float16)
    out = run(kernels, form, q, k, v, causal, stages)
    assert relative_error(out, plainly(q, k, v, causal)) <= TOLERANCE["float16"]


@pytest.mark.parametrize("items", [1, 5, 12, 13, 17])
@pytest.mark.parametrize("programs", [1, 4, 5])
def test_every_item_has_one_program(kernels, items: int, programs: int) -> None:
    Launcher.grid, taken = (programs,), []
    for Launcher.program in range(programs):
        for turn in range(int(kernels.flash_persistent._share(items))):
            taken.append(int(kernels.flash_persistent._item(turn)))
    assert sorted(taken) == list(range(items))
