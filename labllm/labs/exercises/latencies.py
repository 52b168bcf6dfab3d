"""Lab 10: what a user feels, from the moments at which tokens came.

Teaches that the first token and the flow after it are two promises, and that a mean hides a stutter.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake
from labllm.serving.metrics import RequestMetrics
from labllm.serving.output import Output
from labllm.serving.params import SamplingParams
from labllm.serving.request import Request

Answer = tuple[float, float, float]
Times = list[float]


def reference(arrival: float, token_times: Times) -> Answer:
    """(TTFT, TPOT, longest gap) in seconds, by the engine's own metrics."""
    params = SamplingParams(max_tokens=len(token_times))
    request = Request("one", [0], params, Output(params), arrival)
    request.first_scheduled, request.token_times, request.finish = arrival, list(token_times), token_times[-1]
    found = RequestMetrics.of(request)
    return found.ttft, found.tpot or 0.0, max(found.itl)


def _gaps(times: Times) -> Times:
    return [after - before for before, after in pairwise(times)]


def _over_all_tokens(arrival: float, times: Times) -> Answer:
    return times[0] - arrival, (times[-1] - times[0]) / len(times), max(_gaps(times))


def _end_to_end(arrival: float, times: Times) -> Answer:
    return times[0] - arrival, (times[-1] - arrival) / len(times), max(_gaps(times))


def _wait_included(arrival: float, times: Times) -> Answer:
    return times[0] - arrival, (times[-1] - arrival) / (len(times) - 1), max(_gaps(times))


def _first_is_a_gap(arrival: float, times: Times) -> Answer:
    return times[0] - arrival, (times[-1] - times[0]) / (len(times) - 1), max(_gaps([arrival, *times]))


def _median(arrival: float, times: Times) -> Answer:
    return times[0] - arrival, median(_gaps(times)), max(_gaps(times))


def _clock_time(arrival: float, times: Times) -> Answer:
    return times[0], (times[-1] - times[0]) / (len(times) - 1), max(_gaps(times))


def _whole_answer(arrival: float, times: Times) -> Answer:
    return times[-1] - arrival, (times[-1] - times[0]) / (len(times) - 1), max(_gaps(times))


def _rate(arrival: float, times: Times) -> Answer:
    return times[0] - arrival, (len(times) - 1) / (times[-1] - times[0]), max(_gaps(times))


def _last_gap(arrival: float, times: Times) -> Answer:
    return times[0] - arrival, (times[-1] - times[0]) / (len(times) - 1), _gaps(times)[-1]


def _shortest_gap(arrival: float, times: Times) -> Answer:
    return times[0] - arrival, (times[-1] - times[0]) / (len(times) - 1), min(_gaps(times))


def _case(name: str, arrival: float, times: Times) -> Case:
    def make_args(_: Generator) -> tuple[float, Times]:
        return arrival, times

    return Case(name, make_args)


EXERCISE = Exercise(
    name="latencies",
    lab=10,
    title="Time to first token, time per output token, and the longest gap between two tokens.",
    signature="latencies(arrival: float, token_times: list[float]) -> tuple[float, float, float]",
    shapes="""
arrival      seconds at which the request came
token_times  seconds at which each token of the answer was there, at least two
returns (TTFT, TPOT, longest gap) in seconds""",
    formula="""
TTFT = from the arrival to the first token
TPOT = from the first token to the last, divided by the tokens that came in between and last: n - 1
longest gap = the largest time between a token and the next one""",
    reference=reference,
    library="labllm.serving.metrics.RequestMetrics",
    parts=("TTFT", "TPOT", "longest gap"),
    cases=(
        _case("four tokens", 1.0, [3.0, 3.5, 4.0, 4.5]),
        _case("a stutter in the middle", 0.5, [0.75, 1.0, 3.0, 3.25]),
        _case("two tokens", 2.0, [2.5, 4.5]),
        _case("a long wait, then a fast answer", 10.0, [60.0, 60.125, 60.25, 60.5]),
        _case("a stutter at the end", 0.0, [1.0, 1.25, 1.5, 4.0, 4.125]),
    ),
    hints=(
        "TTFT asks about token_times[0] alone; TPOT leaves the wait for it out.",
        "n tokens have n - 1 gaps between them: TPOT is their mean, and all of them together are last minus first.",
        "The gap behind token i is token_times[i + 1] - token_times[i]; the last token has none behind it.",
    ),
    mistakes=(
        Mistake("TPOT is divided by n; n tokens have n - 1 gaps between them.", _over_all_tokens),
        Mistake(
            "TPOT counts the wait for the first token, over all tokens: that is end-to-end time a token.", _end_to_end
        ),
        Mistake("TPOT starts at the arrival; the wait for the first token is TTFT's business.", _wait_included),
        Mistake("The wait for the first token counts as a gap; a gap lies between two tokens.", _first_is_a_gap),
        Mistake("TPOT is the median gap; it is the mean, so that n - 1 of it make the whole.", _median),
        Mistake("TTFT is a time of day: subtract the arrival.", _clock_time),
        Mistake("TTFT goes to the last token: that is the end-to-end latency.", _whole_answer),
        Mistake("TPOT is upside down: seconds a token, not tokens a second.", _rate),
        Mistake("It gives the last gap instead of the longest.", _last_gap),
        Mistake("It gives the shortest gap instead of the longest.", _shortest_gap),
    ),
)
