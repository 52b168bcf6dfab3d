"""Which rank failed first, and why: the one question when a run over several processes ends.

A rank that dies takes others with it: their next collective raises, or waits for ever. So the failures that arrive
together are ordered by what can be a cause: a process that died, then an exception of its own code, then one from
inside a collective. Of ranks that hang, those outside a collective are named first: the others wait for them.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass

from labllm.parallel.messages import packed, unpacked

DIED, RAISED, WAITED = "died", "raised", "waited"
_ORDER = (DIED, RAISED, WAITED)


class RankFailed(RuntimeError):
    """A rank raised, died or hung, and the others were ended.

    rank   its number
    cause  one line: 'raised ValueError: ...', 'died of SIGKILL', 'gave no sign of life for 60 s ...'

    Where the rank raised, `__cause__` is its exception, if that could be sent.
    """

    def __init__(self, rank: int, cause: str, details: str = "") -> None:
        super().__init__(f"rank {rank} {cause}" + (f"\n\n{details.strip()}" if details.strip() else ""))
        self.rank, self.cause, self.details = rank, cause, details


@dataclass(frozen=True)
class Failure:
    """What happened to one rank: `how` is DIED, RAISED (its own code) or WAITED (inside a collective)."""

    rank: int
    how: str
    cause: str
    details: str = ""
    error: BaseException | None = None

    @classmethod
    def of_exception(cls, rank: int, error: BaseException) -> Failure:
        """The exception that ends a rank's call, with its traceback from the called function on."""
        frames = error.__traceback__.tb_next if error.__traceback__ else None
        text = "".join(traceback.format_exception(type(error), error, frames))
        how = WAITED if in_collective(traceback.extract_tb(frames)) else RAISED
        line = str(error).strip().split("\n")[0]
        cause = f"raised {type(error).__name__}" + (f": {line}" if line else "")
        return cls(rank, how, cause, text, error if _can_be_sent(error) else None)

    @classmethod
    def of_exit(cls, rank: int, code: int | None, last_words: str = "") -> Failure:
        """The end of a rank's process by a signal (a negative code) or of its own."""
        if code is None:
            return cls(rank, DIED, "closed its pipe and did not end", last_words)
        if code >= 0:
            return cls(rank, DIED, f"ended its process with exit code {code}", last_words)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (out of memory?)" if name == "SIGKILL" and sys.platform == "linux" else ""
        return cls(rank, DIED, f"died of {name}{hint}", last_words)

    def raised(self) -> RankFailed:
        """The exception for whoever waits for the ranks."""
        failed = RankFailed(self.rank, self.cause, self.details)
        failed.__cause__ = self.error
        return failed


def first(failures: Iterable[Failure]) -> Failure:
    """The failure that can have caused the others."""
    return min(failures, key=lambda f: (_ORDER.index(f.how), f.rank))


def hung(stacks: dict[int, traceback.StackSummary | None], seconds: float) -> Failure:
    """The failure of ranks that have not answered, from where each is (None: it does not even say)."""
    waiting = {rank for rank, stack in stacks.items() if stack and in_collective(stack)}
    blamed = min(set(stacks) - waiting or stacks)
    lines = []
    for rank, stack in sorted(stacks.items()):
        if stack is None:
            lines.append(f"rank {rank} does not say where it is")
        else:
            what = "waits in a collective" if rank in waiting else "is"
            lines.append(f"rank {rank} {what} at\n" + "".join(traceback.format_list(stack)))
    return Failure(blamed, WAITED, f"gave no sign of life for {seconds:g} s, so it hangs", "\n".join(lines))


def _can_be_sent(error: BaseException) -> bool:
    try:
        unpacked(packed(error))
    except Exception:
        return False
    return True


def in_collective(stack: Iterable[traceback.FrameSummary]) -> bool:
    """True where a call of torch.distributed is among the frames."""
    return any("/torch/distributed/" in frame.filename.replace("\\", "/") for frame in stack)
