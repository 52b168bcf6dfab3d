"""What an exercise is: a signature with shapes and a formula, cases, hints and the mistakes that people make.

Each exercise lies in one file, `exercises/<name>.py`, as the module's `EXERCISE`; its plain solution lies apart in
`solutions/<name>.py`, so that deleting that folder leaves a hand-out that still checks every answer.
Invariant: nothing here runs a learner's code; `checker.py` does.
"""

from __future__ import annotations

import textwrap
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from labllm.bench import Rung

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One named input: `make_args(generator)` draws the positional arguments on the generator's device."""

    name: str
    make_args: Callable[[torch.Generator], tuple[Any, ...]]


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people give, and the sentence that explains it; `also` are further ones of that cause."""

    cause: str
    fn: Function
    also: tuple[Function, ...] = ()


@dataclass(frozen=True, repr=False)
class Exercise:
    """`reference` gives the expected answers; `library` is the name of what it calls, where the library has it.

    `parts` names the values of an answer that is a tuple, in the words of the stub.
    With `in_place`, the answer is what the function leaves in the arguments at these positions, not what it returns.
    `needs` names a capability as `labllm.hardware.can` knows it; `timed` says that the speed is worth a look.
    `faster` is a quicker way that nobody is asked for; the card of the solution shows it, and `library` names it.
    `as_rung` turns the learner's function into a rung for the lab's ladder. `launch(fn, *args)` runs a function that
    cannot be called as it stands, the body of a kernel; without it `fn(*args)` is called.
    """

    name: str
    lab: int
    title: str
    signature: str
    shapes: str
    formula: str
    reference: Function
    cases: tuple[Case, ...]
    hints: tuple[str, ...]
    mistakes: tuple[Mistake, ...]
    library: str = ""
    timed: bool = False
    parts: tuple[str, ...] = ()
    in_place: tuple[int, ...] = ()
    needs: str = ""
    faster: Function | None = None
    as_rung: Callable[[Function], Rung] | None = None
    launch: Function | None = None

    def __repr__(self) -> str:
        return f"<exercise {self.name!r} of lab {self.lab:02d}: {self.title}>"

    @property
    def stub(self) -> str:
        """The text that a notebook's cell holds: the signature, what is asked, and `raise NotImplementedError`."""
        told = f'"""{self.title}\n\n{self.shapes.strip()}\n\n{self.formula.strip()}\n"""\nraise NotImplementedError\n'
        return f"def {self.signature}:\n{textwrap.indent(told, '    ')}"

    def call(self, fn: Function, args: tuple[Any, ...]) -> Any:
        """What `fn` gives for these arguments, launched where it needs that; raises whatever it raises."""
        return self.launch(fn, *args) if self.launch else fn(*args)

    def arguments(self, case: Case, device: str = "cpu") -> tuple[Any, ...]:
        """The case's arguments, the same at every call."""
        generator = torch.Generator(device=device)
        generator.manual_seed(zlib.crc32(f"{self.name}/{case.name}".encode()))
        return case.make_args(generator)
