"""A model writes, live: a prompt in a box, tokens as they come, how sure it was of each, and the wait for each.

What is typed is cut into tokens at once; Run makes the model continue it. The waits are the model's own: slow motion
holds back what is shown, so that an eye can follow, and never what is measured.
"""

from __future__ import annotations

import html
import time
from dataclasses import dataclass, field

import ipywidgets as W
import pandas as pd
from tokenizers import Tokenizer

from labllm.bench.pace import pace
from labllm.hardware import this_machine
from labllm.models.llama import Llama
from labllm.models.stream import Token, pieces, prompt_ids, stream
from labllm.ui import Panel, View, choice
from labllm.ui import pace as waits
from labllm.ui.controls import text
from labllm.ui.job import Job
from labllm.ui.series import short_name
from labllm.ui.tokens import Piece, tokens, visible

SLOW, AS_IT_COMES = "slow motion", "as it comes"
REST = 0.08  # seconds between tokens in slow motion
FRAME = 0.05  # seconds of writing after which the text is shown again
PROMPT = "class Point:\n    def __init__(self, x, y):"


@dataclass
class _Answer:
    """What followed a prompt: tokens, each with its wait in seconds."""

    prompt: str
    tokens: list[tuple[Token, float]] = field(default_factory=list)


def boxes(tokenizer: Tokenizer, prompt: str, written: list[Token]) -> list[Piece]:
    """A prompt's tokens behind the one that begins a text, then the written ones with their probabilities."""
    known = pieces(tokenizer, tokenizer.encode(prompt, add_special_tokens=False).ids)
    made = [Piece(t.text, t.probability, _note(t)) for t in written]
    return [Piece("⟨start⟩", note="the token that begins every text"), *map(Piece, known), *made]


def writing(model: Llama, tokenizer: Tokenizer, prompt: str = PROMPT, new_tokens: int = 48) -> Panel:
    """The panel. Errors of a run, such as a prompt that is too long, are shown in it.

    Raises ValueError where `new_tokens` is none of 16, 48, 128 and 256.
    """
    return _Writer(model, tokenizer).panel(prompt, new_tokens)


class _Writer:
    def __init__(self, model: Llama, tokenizer: Tokenizer) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.answer = _Answer("")
        self.page = W.HTML()
        self.page.add_class("labllm-text")

    def panel(self, prompt: str, new_tokens: int) -> Panel:
        controls = {
            "prompt": text(prompt, rows=4),
            "new_tokens": choice(16, 48, 128, 256, value=new_tokens, label="at most, new tokens"),
            "show": choice(SLOW, AS_IT_COMES),
        }
        ready = "Run lets the model continue"
        panel = Panel(self._draw, controls, self._write, name="a model writes", ready=ready, state=self)
        inside = list(panel.widget.children)
        place = inside.index(panel.error) + 1
        panel.widget.children = (*inside[:place], self.page, *inside[place:])
        return panel

    def _draw(self, prompt: str, new_tokens: int, show: str) -> View:
        answer = self.answer if self.answer.prompt == prompt else _Answer(prompt)
        self._show(answer)
        length = len(prompt_ids(self.model.config, self.tokenizer, prompt))
        took = {"cached": [wait for _, wait in answer.tokens]}
        here = short_name(this_machine(self.model.device.type).name)
        caption = f"here: {here}, one run of at most {new_tokens} tokens, shown {_manner(show)}"
        return View(waits.chart(took, length, caption=caption), waits.conclusion(took, length), _frame(answer))

    def _write(self, values: dict[str, object], job: Job) -> None:
        answer = self.answer = _Answer(str(values["prompt"]))
        asked = 4 if job.smallest else int(values["new_tokens"])  # type: ignore[call-overload]
        list(stream(self.model, self.tokenizer, answer.prompt, min(2, asked)))  # the first call pays for set-up
        job.expect(asked)
        since = FRAME
        for token, wait in pace(stream(self.model, self.tokenizer, answer.prompt, asked), self.model.device.type):
            answer.tokens.append((token, wait))
            job.done += 1
            since += wait
            if values["show"] == SLOW and not job.smallest:
                time.sleep(REST)
                since += REST
            if since >= FRAME:
                self._show(answer)
                job.say("writing")
                since = 0.0
            if job.stopped():
                return

    def _show(self, answer: _Answer) -> None:
        written = [token for token, _ in answer.tokens]
        new = html.escape("".join(token.text for token in written))
        plain = f"{html.escape(answer.prompt)}<strong>{new}</strong>"
        self.page.value = (
            f'<pre style="line-height:1.3;margin:.3em 0 .6em;white-space:pre-wrap;color:inherit">{plain}</pre>'
            f"{tokens(boxes(self.tokenizer, answer.prompt, written)).html}"
        )


def _note(token: Token) -> str:
    return f"{token.probability:.1%}; second choice {visible(token.second.text)} with {token.second.probability:.1%}"


def _manner(show: str) -> str:
    return f"in {show}" if show == SLOW else show


def _frame(answer: _Answer) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "token": number,
                "text": visible(token.text),
                "probability (%)": 100 * token.probability,
                "second choice": visible(token.second.text),
                "its probability (%)": 100 * token.second.probability,
                "wait (ms)": 1e3 * wait,
            }
            for number, (token, wait) in enumerate(list(answer.tokens), start=1)
        ]
    )
