"""Greedy equality: in float32 on pico every path to the next token writes the same ids.

One module for the whole project. A path is a function (model, prompts, max_new_tokens) -> ids; a technique that claims
to be exact adds its paths to PATHS. The reference recomputes everything. Where an id differs, the reference's two best
logits must lie within TIE of one another: then both ids are right, what follows cannot be compared, and the tie is
counted in the test's report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest

import pytest
import torch

from labllm.attention.paged_attend import PagedAttention
from labllm.cache.table import BlockTable
from labllm.models.generate import collect, generate_cached, generate_recompute
from labllm.models.heldout import held_out
from labllm.models.llama import Llama
from labllm.models.load import load
from labllm.models.operations import EAGER, FUSED
from labllm.models.paged import PagedModel, generate_forked, generate_graphed, generate_paged
from labllm.models.pico import WEIGHTS, pico, pico_tokenizer
from labllm.models.pico.shape import PICO
from labllm.models.tensor_parallel.sequence import sequence_parallel
from labllm.parallel import Workers
from labllm.parallel.tensor import TensorParallel
from labllm.serving.config import CHUNKED, CONTINUOUS, PREFIX, RUNGS, STATIC, EngineConfig
from labllm.serving.engine import Engine
from labllm.serving.executors.ranks import RankExecutor
from labllm.serving.executors.real import RealExecutor
from labllm.serving.intake import Intake
from labllm.serving.llm import real_engine
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request
from labllm.serving.source import Source

Ids = list[list[int]]
TIE = 1e-4
NEW_TOKENS = 18
BEGINNING = 37  # tokens that all prompts of one batch share; no multiple of 16 or 64, so that forks copy
OTHER = [11, 7]  # what another branch goes on with


def paged_in_scattered_blocks(model: Llama, prompts: Ids, max_new_tokens: int, block_size: int) -> Ids:
    """Blocks in random order that others left full of rubbish; prompts are read one by one, then decoded together."""
    count = 2 * sum(-(-(len(prompt) + max_new_tokens) // block_size) for prompt in prompts)
    paged, generator = PagedModel(model, count, block_size), torch.Generator().manual_seed(block_size)
    paged.cache.pool.copy_(torch.randn(paged.cache.pool.shape, generator=generator))
    paged.pool.allocate(count)
    paged.pool.free(torch.randperm(count, generator=generator).tolist())
    tables = [BlockTable(paged.pool) for _ in prompts]
    first = [int(paged.read([t], [prompt]).argmax()) for t, prompt in zip(tables, prompts, strict=True)]
    rest = collect(paged.write(tables, [[i] for i in first], max_new_tokens - 1))
    return [[i, *ids] for i, ids in zip(first, rest, strict=True)]


def paged_in_chunks(model: Llama, prompts: Ids, max_new_tokens: int, block_size: int) -> Ids:
    """Each prompt is read in pieces of at most 9 tokens, across the edges of blocks."""
    paged = PagedModel(model, sum(-(-(len(p) + max_new_tokens) // block_size) for p in prompts), block_size)
    tables = [BlockTable(paged.pool) for _ in prompts]
    for table, prompt in zip(tables, prompts, strict=True):
        for start in range(0, len(prompt) - 1, 9):
            paged.read([table], [prompt[start : min(start + 9, len(prompt) - 1)]])
    return collect(paged.write(tables, [prompt[-1:] for prompt in prompts], max_new_tokens))


def fused(model: Llama, prompts: Ids, max_new_tokens: int, path: Callable[[Llama, Ids, int], Ids]) -> Ids:
    """`path` on the packed model of the same weights, fused where kernels compile."""
    return path(fused_on(model.device.type), prompts, max_new_tokens)


def forked(model: Llama, prompts: Ids, max_new_tokens: int, block_size: int) -> Ids:
    """Every prompt forks before its last token, and what another branch writes leaves no trace in this one."""
    made = []
    for prompt in prompts:
        if len(prompt) == 1:
            made += generate_paged(model, [prompt], max_new_tokens, block_size)
            continue
        tails = [prompt[-1:], OTHER, prompt[-1:]]
        first, _, last = generate_forked(model, prompt[:-1], tails, max_new_tokens, block_size)
        assert first == last
        made.append(first)
    return made


def served(model: Llama, prompts: Ids, max_new_tokens: int, config: EngineConfig, **trouble: bool) -> Ids:
    """By an engine: `late` ids come one step late, `twice` the prompts come again, `abort` beside others that go away,
    `preempt` somebody loses its seat every third step."""
    config = config.but(max_model_len=128).for_model(model.config)
    engine = real_engine(model, config)
    intake = Intake(engine, model.config)
    params = SamplingParams(max_tokens=max_new_tokens, temperature=0.0, ignore_eos=True)
    if trouble.get("late"):
        engine.executor = RealExecutor(model, config, engine.pool.num_blocks, lookahead=1)
    if trouble.get("twice"):
        served_from(engine, [intake.requests(prompt, params)[0] for prompt in prompts])
    neighbours = [intake.requests(prompt[::-1], params)[0] for prompt in prompts] if trouble.get("abort") else []
    requests = [intake.requests(prompt, params)[0] for prompt in prompts]
    made = served_from(engine, requests, neighbours, 3 if trouble.get("preempt") else 0)
    if trouble.get("twice"):
        assert all(request.num_cached == (request.num_prompt - 1) // 16 * 16 for request in requests)
    if trouble.get("preempt"):
        assert sum(request.preemptions for request in requests) > 2
    return made


def served_from(engine: Engine, requests: Sequence[Request], neighbours: Sequence[Request] = (), every: int = 0) -> Ids:
    """Serve the requests; neighbours come between them and are aborted one by one."""
    for pair in zip_longest(requests, neighbours):
        for request in filter(None, pair):
            engine.add(request)
    leaving, steps = list(neighbours), 0
    while engine.has_unfinished:
        engine.step()
        steps += 1
        if leaving and steps % 2:
            engine.abort(leaving.pop().id)
        if every and steps % every == 0 and engine.scheduler.running:
            engine.scheduler.preempt(engine.scheduler.running[steps % len(engine.scheduler.running)])
    return [request.output.token_ids for request in requests]


def on_ranks(
    tensor: int, pipeline: int, device: str, workers: Workers | None = None, lookahead: int | None = None
) -> Ids:
    """By an engine over ranks, in chunks, with fewer seats than prompts."""
    config = PREFIX.but(max_num_seqs=5, max_num_batched_tokens=33, max_model_len=128).for_model(PICO)
    config = config.but(tensor_parallel_size=tensor, pipeline_parallel_size=pipeline)
    executor = RankExecutor(Source("pico"), config, device, workers, lookahead)
    try:
        engine = Engine.of(executor, config, executor.num_blocks, PICO.vocab_size)
        intake, params = Intake(engine, PICO), SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True)
        return served_from(engine, [intake.requests(prompt, params)[0] for prompt in batches()["unequal lengths"]])
    finally:
        executor.close()


RANKS = [(2, 1), (1, 2), (2, 2)]  # tensor parallel, pipeline parallel
SERVED: dict[str, Callable[[Llama, Ids, int], Ids]] = {
    **{name: partial(served, config=config.but(max_num_seqs=8)) for name, config in RUNGS.items()},
    **{f"{name}, two seats": partial(served, config=config.but(max_num_seqs=2)) for name, config in RUNGS.items()},
    **{
        f"chunked, {tokens} tokens a step": partial(
            served, config=CHUNKED.but(max_num_seqs=6, max_num_batched_tokens=tokens, block_size=size)
        )
        for tokens, size in ((6, 16), (17, 1), (64, 64))
    },
    **{
        f"{policy} first": partial(served, config=CHUNKED.but(max_num_seqs=3, scheduling_policy=policy))
        for policy in ("shortest", "priority")
    },
    "out of blocks": partial(served, config=PREFIX.but(max_num_seqs=6, kv_blocks=9)),
    "prefix hit": partial(served, config=PREFIX.but(max_num_seqs=6), twice=True),
    "preempted": partial(served, config=CONTINUOUS.but(max_num_seqs=4), preempt=True),
    "preempted, prefix, late": partial(served, config=PREFIX.but(max_num_seqs=4), preempt=True, late=True),
    "beside aborted neighbours": partial(served, config=PREFIX.but(max_num_seqs=4), abort=True),
    "ids one step late": partial(served, config=CHUNKED.but(max_num_seqs=6, max_num_batched_tokens=33), late=True),
    "gangs, ids one step late": partial(served, config=STATIC.but(max_num_seqs=4), late=True, abort=True),
}

PATHS: dict[str, Callable[[Llama, Ids, int], Ids]] = {
    "cached": generate_cached,
    "paged by the kernels, block size 16": partial(generate_paged, attend=PagedAttention),
    "paged by the kernels, block size 64": partial(generate_paged, block_size=64, attend=PagedAttention),
    **{
        f"{name}, block size {size}": partial(path, block_size=size)
        for name, path in {
            "paged": generate_paged,
            "paged in scattered blocks": paged_in_scattered_blocks,
            "paged in chunks": paged_in_chunks,
            "forked": forked,
        }.items()
        for size in (1, 16, 64)
    },
    "decode in graphs": generate_graphed,
    **{
        f"fused, {name}": partial(fused, path=path)
        for name, path in {
            "recompute": generate_recompute,
            "cached": generate_cached,
            "paged": generate_paged,
            "paged by the kernels": partial(generate_paged, attend=PagedAttention),
            "decode in graphs": generate_graphed,
        }.items()
    },
    **{f"served, {name}": path for name, path in SERVED.items()},
    "fused, served": partial(fused, path=SERVED["prefix"]),
}


@cache
def model_on(device: str) -> Llama:
    return pico(device, torch.float32)


@cache
def fused_on(device: str) -> Llama:
    return pico(device, torch.float32, FUSED)


@cache
def batches() -> dict[str, Ids]:
    """Prompts of real text: lengths about the edges of blocks, and prompts with one beginning."""
    text = pico_tokenizer().encode(held_out().text).ids
    unequal = [text[1000 * i :][:length] for i, length in enumerate((1, 15, 16, 17, 64, 65))]
    tails = [text[700 * i :][:length] for i, length in enumerate((1, 3, 11, 27), start=1)]
    return {"unequal lengths": unequal, "one beginning": [text[:BEGINNING] + tail for tail in tails]}


@dataclass(frozen=True)
class Reference:
    """The ids that follow each prompt, and by how much the best logit of each position exceeds the second best."""

    ids: Ids
    margins: list[list[float]]


@cache
@torch.inference_mode()
def reference(batch: str, device: str) -> Reference:
    model, prompts = model_on(device), batches()[batch]
    ids = generate_recompute(model, prompts, NEW_TOKENS)
    margins = []
    for prompt, made in zip(prompts, ids, strict=True):
        logits = model.forward_dense(torch.tensor([prompt + made[:-1]], device=device))[0, -NEW_TOKENS:]
        best = logits.topk(2).values
        margins.append((best[:, 0] - best[:, 1]).tolist())
    return Reference(ids, margins)


def ties(made: Sequence[Sequence[int]], expected: Reference) -> int:
    """How many sequences differ from the reference at a tie. Raises AssertionError where one differs elsewhere."""
    assert [len(ids) for ids in made] == [len(ids) for ids in expected.ids]
    count = 0
    for number, (ids, wanted, margins) in enumerate(zip(made, expected.ids, expected.margins, strict=True)):
        differing = [i for i, (a, b) in enumerate(zip(ids, wanted, strict=True)) if a != b]
        if differing:
            first = differing[0]
            assert margins[first] <= TIE, (
                f"sequence {number} writes {ids[first]} as its new token {first} where the reference writes "
                f"{wanted[first]}, by a margin of {margins[first]:.2g}"
            )
            count += 1
    return count


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """pico's matrices are so small that several threads mostly wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("path", PATHS)
def test_greedy_ids_are_the_same_along(path: str, device: str, record_property: Callable[[str, object], None]) -> None:
    made = PATHS[path](model_on(device), batches()["unequal lengths"], NEW_TOKENS)
    record_property("ties", ties(made, reference("unequal lengths", device)))


@pytest.mark.parametrize("late", [False, True], ids=["ids at once", "ids one step late"])
@pytest.mark.parametrize(("tensor", "pipeline"), RANKS, ids=lambda size: str(size))
def test_greedy_ids_are_the_same_on_ranks(
    tensor: int,
    pipeline: int,
    late: bool,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    workers = request.getfixturevalue("workers" if tensor * pipeline == 2 else "four_workers")
    made = on_ranks(tensor, pipeline, "cpu", workers, int(late))
    record_property("ties", ties(made, reference("unequal lengths", "cpu")))


@pytest.mark.parametrize(("ranks", "way"), [(2, "plain"), (4, "plain"), (2, "sequence parallel")], ids=lambda x: str(x))
def test_greedy_ids_are_the_same_where_ranks_share_layers(
    ranks: int, way: str, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    """The model alone, without an engine; four ranks hold each of pico's two KV heads twice."""

    def written(prompts: Ids) -> Ids:
        shared = TensorParallel.of()
        operations = sequence_parallel(EAGER, shared) if way == "sequence parallel" else None
        model = load(WEIGHTS, operations=operations, tensor_parallel=shared)
        return generate_paged(model, prompts, NEW_TOKENS)

    workers: Workers = request.getfixturevalue("workers" if ranks == 2 else "four_workers")
    for made in workers.call(written, batches()["unequal lengths"]):
        record_property("ties", ties(made, reference("unequal lengths", "cpu")))


@pytest.mark.gpu
@pytest.mark.parametrize(("tensor", "pipeline"), RANKS, ids=lambda size: str(size))
def test_greedy_ids_are_the_same_on_gpus(
    tensor: int, pipeline: int, record_property: Callable[[str, object], None]
) -> None:
    if torch.cuda.device_count() < tensor * pipeline:
        pytest.skip(f"needs {tensor * pipeline} GPUs")
    made = on_ranks(tensor, pipeline, "cuda")
    record_property("ties", ties(made, reference("unequal lengths", "cuda")))


@pytest.mark.parametrize("block_size", [1, 16, 64])
def test_prompts_that_share_the_blocks_of_one_beginning(
    block_size: int, device: str, record_property: Callable[[str, object], None]
) -> None:
    prompts = batches()["one beginning"]
    tails = [prompt[BEGINNING:] for prompt in prompts]
    made = generate_forked(model_on(device), prompts[0][:BEGINNING], tails, NEW_TOKENS, block_size)
    record_property("ties", ties(made, reference("one beginning", device)))


def test_a_difference_passes_at_a_tie_only() -> None:
    expected = Reference([[1, 2, 3], [4, 5, 6]], [[0.5, TIE / 2, 0.5], [0.5, 0.5, 0.5]])
    assert ties([[1, 2, 3], [4, 5, 6]], expected) == 0
    assert ties([[1, 9, 9], [4, 5, 6]], expected) == 1
    for wrong in ([[9, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 9]], [[1, 2, 9], [4, 5, 6]]):
        with pytest.raises(AssertionError, match="writes 9"):
            ties(wrong, expected)
    with pytest.raises(AssertionError):
        ties([[1, 2], [4, 5, 6]], expected)
