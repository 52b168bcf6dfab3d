"""AsyncEngine: many callers, each with its own stream, over one engine in one thread.

    async for output in engine.generate("def add(", SamplingParams(max_tokens=64)):
        print(output.outputs[0].text)

The engine's thread alone touches the engine. Callers hand it commands (add, abort) through a queue that it empties
between two steps, and it hands each changed request back to its caller's event loop. A caller who goes away, by
cancelling or by leaving the loop, aborts its request: seat and blocks are free a step later.

Cost: one hand-over a request and step. Invariant: a stream yields longer and longer snapshots and ends with a finished
one; no request outlives its stream.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from labllm.serving.intake import Intake, Prompt
from labllm.serving.outputs import RequestOutput
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request

Command = Callable[[], None]


@dataclass(eq=False)
class Stream:
    """One caller: its requests, and the queue in its event loop to which snapshots, or what went wrong, go."""

    loop: asyncio.AbstractEventLoop
    outputs: asyncio.Queue[RequestOutput | Exception]
    name: str = ""
    prompt: Prompt = ""
    requests: tuple[Request, ...] = ()

    def put(self, item: RequestOutput | Exception) -> None:
        """From the engine's thread; a loop that is closed wants nothing any more."""
        try:
            self.loop.call_soon_threadsafe(self.outputs.put_nowait, item)
        except RuntimeError:
            pass


class AsyncEngine:
    """Serves until `close`, in a thread of its own; `intake` makes requests for its engine."""

    def __init__(self, intake: Intake) -> None:
        self.intake, self.engine = intake, intake.engine
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._streams: dict[Request, Stream] = {}
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="labllm-engine", daemon=True)
        self._thread.start()

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Snapshots of the answers as they grow; after `timeout` seconds an answer ends with reason deadline.

        Raises ValueError, in a sentence, for a request that the engine refuses; RuntimeError after `close`.
        """
        stream = Stream(asyncio.get_running_loop(), asyncio.Queue())
        params = sampling_params or SamplingParams()
        if self._failure is not None:
            raise self._failure
        self._commands.put(lambda: self._add(stream, prompt, params, request_id, priority, timeout))
        try:
            while True:
                output = await stream.outputs.get()
                if isinstance(output, Exception):
                    raise output
                yield output
                if output.finished:
                    return
        finally:
            self._commands.put(lambda: self._abort(stream))

    def close(self) -> None:
        """End all streams with reason abort and stop; harmless when repeated."""
        self._failure = self._failure or RuntimeError("The engine is closed.")
        self._commands.put(None)
        self._thread.join()

    def _run(self) -> None:
        """The engine's thread. A fault of the engine itself ends it, and every caller hears of it."""
        try:
            self._serve()
        except Exception as error:
            self._failure = error
            for stream in dict.fromkeys(self._streams.values()):
                stream.put(error)
            raise

    def _serve(self) -> None:
        while self._obey():
            self._hand_out(self.engine.step())
        for request in list(self._streams):
            self.engine.abort(request.id)
        while self.engine.has_unfinished:
            self._hand_out(self.engine.step())

    def _obey(self) -> bool:
        """Run the commands that wait, or wait for one where nothing is served; False to stop."""
        while True:
            try:
                command = self._commands.get(block=not self.engine.has_unfinished)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()

    def _add(self, stream: Stream, prompt: Prompt, *rest: object) -> None:
        try:
            requests = self.intake.requests(prompt, *rest)
            for request in requests:
                self.engine.add(request)
        except Exception as error:  # whatever is wrong with one request is its caller's to know
            stream.put(error)
            return
        stream.name, stream.prompt, stream.requests = requests[0].id, prompt, tuple(requests)
        self._streams |= dict.fromkeys(requests, stream)

    def _abort(self, stream: Stream) -> None:
        for request in stream.requests:
            if self._streams.pop(request, None) is not None:
                self.engine.abort(request.id)

    def _hand_out(self, changed: list[Request]) -> None:
        for stream in dict.fromkeys(self._streams[request] for request in changed if request in self._streams):
            stream.put(RequestOutput.of(stream.name, stream.prompt, stream.requests))
        for request in changed:
            if request.finished:
                self._streams.pop(request, None)
