"""What a long piece of work in a Panel may say while it runs, and how it learns that it should stop."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

from tqdm import tqdm


class Job:
    """One press of Run. `smallest` asks for the least work that shows that the panel works."""

    def __init__(
        self,
        smallest: bool = False,
        progress: Callable[[int, int, str], None] = lambda done, total, words: None,
        redraw: Callable[[], None] = lambda: None,
        problem: Callable[[str, str], None] = lambda word, text: None,
    ) -> None:
        self.smallest, self.redraw, self.problem = smallest, redraw, problem
        self.done, self.total, self.remark = 0, 0, ""
        self._progress, self._stop = progress, threading.Event()
        self._meter = tqdm(total=0, file=io.StringIO())

    def expect(self, total: int) -> None:
        """Say how many results there will be at most."""
        self.total = total
        self._meter = tqdm(total=total, file=io.StringIO())

    def stop(self) -> None:
        self._stop.set()

    def stopped(self) -> bool:
        """True once Stop was pressed: end soon and keep what there is."""
        return self._stop.is_set()

    def say(self, words: str) -> None:
        """What happens now: the status line, with how far it is and how long the rest takes at this pace."""
        self._progress(self.done, self.total, f"{words} ({self._how_far()})" if self.total else words)

    def result(self, words: str) -> None:
        """Count one result, and draw what there is."""
        self.done += 1
        self._meter.update()
        self.redraw()
        self.say(words)

    def last_words(self, failed: bool = False) -> str:
        """The status line once the work has ended, with what the work wanted to add (`remark`)."""
        results = f"{self.done} result{'' if self.done == 1 else 's'}"
        if failed:
            return f"ended by an error, see above; {results} kept"
        ended = f"stopped; {results} kept" if self.stopped() else f"finished: {results}"
        return f"{ended}; {self.remark}" if self.remark else ended

    def _how_far(self) -> str:
        state = self._meter.format_dict
        text = f"{self.done} of {self.total}"
        if not 0 < self.done < self.total:
            return text
        left = state["elapsed"] / self.done * (self.total - self.done)
        return f"{text}, about {tqdm.format_interval(left)} left"
