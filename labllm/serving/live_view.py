"""pico serves a trace live, under both schedulers, and the engine's log is drawn: a panel.

Run replays the same requests once a scheduler, on this machine, and draws who was served when. One run each is a look
and no measurement (`labllm bench batching` is): another program on the machine shows in it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from labllm.hardware import this_machine
from labllm.serving import timeline
from labllm.serving.gangs import gain_bound
from labllm.serving.ladder import Traffic, lengths, played, traffic
from labllm.serving.replay import Run
from labllm.serving.timeline_view import SCHEDULERS, arriving, compared, rates
from labllm.ui import Panel, View, choice, slider
from labllm.ui.job import Job
from labllm.ui.series import short_name
from labllm.ui.style import blank, times

TITLE = "pico serves, here"
SMALLEST = 3  # tokens of a mean answer that show that the panel works
EMPTY = "Nothing is served at these settings yet: press Run."


def live(device: str, requests: int = 16, answer: int = 38) -> Panel:
    """A panel over length ratio, seats, arrival rate and number of requests; Run serves them twice."""
    controls = {
        "ratio": slider(1, 2, 4, 8, 16, 32, value=8, label="long over short answer"),
        "max_num_seqs": slider(1, 2, 4, 8, 16, value=4, label="seats"),
        "rate": rates(),
        "requests": choice(8, 16, 32, 64, value=requests),
    }
    server = _Server(device, answer)
    ready = "Run serves the requests under both schedulers on this machine"
    return Panel(server.draw, controls, server.serve, name="live batching", ready=ready, state=server)


class _Server:
    """What was served, by workload and scheduler."""

    def __init__(self, device: str, answer: int) -> None:
        self.device, self.answer = device, answer
        self.served: dict[tuple[Traffic, str], Run] = {}

    def workload(self, ratio: int, max_num_seqs: int, rate: int, requests: int) -> Traffic:
        return Traffic(ratio, max_num_seqs, requests, **arriving(rate), answer=self.answer)

    def draw(self, **values: Any) -> View:
        w = self.workload(**values)
        runs = {name: self.served[w, name] for name in SCHEDULERS if (w, name) in self.served}
        short, long = lengths(w.answer, w.ratio)
        arrivals = f"{w.rate} arrive a second" if w.arrivals != "at once" else "all are there at the beginning"
        subtitle = f"{w.requests} requests of {short} or {long} tokens, {w.max_num_seqs} seats, {arrivals}"
        if not runs:
            return View(blank(TITLE, EMPTY, subtitle), EMPTY)
        here = short_name(this_machine(self.device).name)
        figure = timeline.draw(runs, TITLE, subtitle, caption=f"here: {here}, one run each")
        bound = gain_bound([r.max_tokens for r in traffic(w)], w.max_num_seqs)
        sentence = f"{timeline.conclusion(runs)} By lengths alone the gain is at most {times(bound)}."
        return View(figure, sentence, compared(runs))

    def serve(self, values: dict[str, Any], job: Job) -> None:
        w = self.workload(**values)
        asked = replace(w, answer=SMALLEST, arrivals="at once") if job.smallest else w
        job.expect(len(SCHEDULERS))
        for name in SCHEDULERS:
            job.say(f"serving by {name} batching")
            self.served = self.served | {(w, name): played(asked, name, self.device)}
            job.result(f"{name} batching has ended")
            if job.stopped():
                return
