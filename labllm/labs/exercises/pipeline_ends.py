"""Lab 16: when each micro-batch leaves each stage.

Teaches the two things a stage waits for, its input and itself, and that with unequal stages the slowest one sets the
pace: all others wait in its rhythm.
"""

from __future__ import annotations

from torch import Generator

from labllm.labs.exercise import Case, Exercise, Mistake

Seconds = list[float]
Table = list[list[float]]


def reference(seconds: Seconds, micro_batches: int, send: float) -> Table:
    """ends[stage][micro_batch] of fill-drain, sending beside computing."""
    return _ends(seconds, micro_batches, send)


def _ends(seconds: Seconds, micro_batches: int, send: float, *, itself: bool = True, inputs: bool = True) -> Table:
    ends: Table = []
    for stage, took in enumerate(seconds):
        ends.append([])
        for m in range(micro_batches):
            ready = ends[stage - 1][m] + send if stage and inputs else 0.0
            free = ends[stage][m - 1] if m and itself else 0.0
            ends[stage].append(max(ready, free) + took)
    return ends


def _itself_unnoticed(seconds: Seconds, micro_batches: int, send: float) -> Table:
    return _ends(seconds, micro_batches, send, itself=False)


def _inputs_unnoticed(seconds: Seconds, micro_batches: int, send: float) -> Table:
    return _ends(seconds, micro_batches, send, inputs=False)


def _no_send(seconds: Seconds, micro_batches: int, send: float) -> Table:
    return _ends(seconds, micro_batches, 0.0)


def _all_late(seconds: Seconds, micro_batches: int, send: float) -> Table:
    """The first stage waits for a message too, or every end is the moment at which an answer has arrived."""
    return [[end + send for end in row] for row in _ends(seconds, micro_batches, send)]


def _ends_as_arrived(seconds: Seconds, micro_batches: int, send: float) -> Table:
    """The ends of all stages but the last, which sends to nobody, are `send` late."""
    *sending, last = _ends(seconds, micro_batches, send)
    return [*([end + send for end in row] for row in sending), last]


def _sending_takes_the_receiver(seconds: Seconds, micro_batches: int, send: float) -> Table:
    """A stage takes `send` more for each micro-batch that comes from a stage before."""
    return _ends([took + (send if stage else 0.0) for stage, took in enumerate(seconds)], micro_batches, 0.0)


def _sending_takes_every_stage(seconds: Seconds, micro_batches: int, send: float) -> Table:
    return _ends([took + send for took in seconds], micro_batches, 0.0)


def _sending_takes_the_sender(seconds: Seconds, micro_batches: int, send: float) -> Table:
    last = len(seconds) - 1
    return _ends([took + (send if stage < last else 0.0) for stage, took in enumerate(seconds)], micro_batches, 0.0)


def _sending_blocks(seconds: Seconds, micro_batches: int, send: float) -> Table:
    """A stage computes and sends, then takes the next: its ends as computed, the next start after the send."""
    ends: Table = []
    for stage, took in enumerate(seconds):
        ends.append([])
        for m in range(micro_batches):
            ready = ends[stage - 1][m] + send if stage else 0.0
            free = ends[stage][m - 1] + (send if stage < len(seconds) - 1 else 0.0) if m else 0.0
            ends[stage].append(max(ready, free) + took)
    return ends


def _batch_by_batch(seconds: Seconds, micro_batches: int, send: float) -> Table:
    """A stage starts when all micro-batches have left the one before."""
    ends: Table = []
    start = 0.0
    for took in seconds:
        ends.append([start + (m + 1) * took for m in range(micro_batches)])
        start = ends[-1][-1] + send
    return ends


def _one_at_a_time(seconds: Seconds, micro_batches: int, send: float) -> Table:
    """A micro-batch starts when the one before has left the last stage."""
    whole = sum(seconds) + send * (len(seconds) - 1)
    alone = [sum(seconds[: i + 1]) + send * i for i in range(len(seconds))]
    return [[m * whole + end for m in range(micro_batches)] for end in alone]


def _both_waits_added(seconds: Seconds, micro_batches: int, send: float) -> Table:
    ends: Table = []
    for stage, took in enumerate(seconds):
        ends.append([])
        for m in range(micro_batches):
            ready = ends[stage - 1][m] + send if stage else 0.0
            ends[stage].append(ready + (ends[stage][m - 1] if m else 0.0) + took)
    return ends


def _all_as_slow(seconds: Seconds, micro_batches: int, send: float) -> Table:
    return _ends([max(seconds)] * len(seconds), micro_batches, send)


def _all_as_the_mean(seconds: Seconds, micro_batches: int, send: float) -> Table:
    return _ends([sum(seconds) / len(seconds)] * len(seconds), micro_batches, send)


def _starts(seconds: Seconds, micro_batches: int, send: float) -> Table:
    return [[end - took for end in row] for row, took in zip(_ends(seconds, micro_batches, send), seconds, strict=True)]


def _transposed(seconds: Seconds, micro_batches: int, send: float) -> Table:
    return [list(row) for row in zip(*_ends(seconds, micro_batches, send), strict=True)]


def _last_stage_only(seconds: Seconds, micro_batches: int, send: float) -> Seconds:
    return _ends(seconds, micro_batches, send)[-1]


def _case(name: str, seconds: Seconds, micro_batches: int, send: float) -> Case:
    def make_args(_: Generator) -> tuple[Seconds, int, float]:
        return list(seconds), micro_batches, send

    return Case(name, make_args)


EXERCISE = Exercise(
    name="pipeline_ends",
    lab=16,
    title="When each micro-batch leaves each stage of a pipeline.",
    signature="pipeline_ends(seconds: list[float], micro_batches: int, send: float) -> list[list[float]]",
    shapes="""
seconds        what each stage takes for one micro-batch, the first stage first
micro_batches  how many there are; all are there at time 0 and go through in order
send           seconds from the end of a stage to the next one having its input; meanwhile the sender works on
returns ends[stage][micro_batch]: when that stage has computed that micro-batch""",
    formula="""
a stage starts a micro-batch as soon as its input is there and the stage has ended the micro-batch before
end = max(end of the stage before + send, end of the micro-batch before) + the stage's seconds""",
    reference=reference,
    library="labllm.parallel.timeline.simulate",
    cases=(
        _case("two equal stages, three micro-batches", [1.0, 1.0], 3, 0.25),
        _case("one micro-batch", [1.0, 2.0, 1.0], 1, 0.5),
        _case("a slow second stage", [1.0, 3.0], 3, 0.125),
        _case("a slow first stage", [3.0, 1.0], 3, 0.125),
        _case("sending takes longer than computing", [1.0, 1.0, 1.0], 4, 2.0),
        _case("sending costs nothing", [1.0, 1.0, 1.0, 1.0], 8, 0.0),
        _case("one stage", [2.0], 3, 1.0),
    ),
    hints=(
        "Two loops: over the stages, and within over the micro-batches. Of each, ask for two times: ready and free.",
        "ready = ends[stage - 1][m] + send, 0 for the first stage; free = ends[stage][m - 1], 0 for the first one.",
        "The later of both is the start: max(ready, free) + seconds[stage].",
    ),
    mistakes=(
        Mistake("A stage takes a micro-batch while it still computes the one before.", _itself_unnoticed),
        Mistake("A stage starts before its input is there: it has to wait for the stage before.", _inputs_unnoticed),
        Mistake("Sending takes no time here; the next stage has its input `send` later.", _no_send),
        Mistake(
            "All ends are `send` late. The micro-batches lie at the first stage at time 0, so nothing is sent before "
            "stage 0; and an end is when the stage has computed, not when its answer has arrived.",
            _all_late,
        ),
        Mistake("The end includes sending; asked is when the stage has computed.", _ends_as_arrived),
        Mistake(
            "`send` is added to the receiver's own time, as if it could not compute while a message is under way. "
            "Only the input comes later: max(end of the stage before + send, end of the micro-batch before).",
            _sending_takes_the_receiver,
            also=(_sending_takes_every_stage,),
        ),
        Mistake(
            "A stage waits until its output has arrived; it sends while it computes on.",
            _sending_blocks,
            also=(_sending_takes_the_sender,),
        ),
        Mistake(
            "A stage waits until all micro-batches have left the one before: then nothing overlaps, and cutting the "
            "batch was for nothing.",
            _batch_by_batch,
        ),
        Mistake(
            "A micro-batch waits until the one before has left the last stage; the first stage is free long before.",
            _one_at_a_time,
        ),
        Mistake("The two waits are added; they happen at the same time, so the later one counts.", _both_waits_added),
        Mistake("Every stage takes as long as the slowest; each has its own time.", _all_as_slow),
        Mistake("Every stage takes the mean; each has its own time.", _all_as_the_mean),
        Mistake("Those are the starts; asked are the ends.", _starts),
        Mistake("Rows and columns are swapped: ends[stage][micro_batch].", _transposed),
        Mistake("Only the last stage is there; asked is a list for each stage.", _last_stage_only),
    ),
)
