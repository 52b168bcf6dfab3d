"""The writing panel: typing cuts into tokens, Run writes in a thread, and what is shown is what was written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from labllm.models.config import ModelConfig
from labllm.models.generate import generate_cached
from labllm.models.load import from_config
from labllm.models.pico.tokens import train_tokenizer
from labllm.models.rope import RopeConfig
from labllm.models.stream import prompt_ids
from labllm.models.writing import AS_IT_COMES, writing
from labllm.ui import Panel, self_check

TOKENIZER = train_tokenizer(["def f(x):\n    return x + 1\n"] * 20, 300)
SIZE = TOKENIZER.get_vocab_size()
CONFIG = ModelConfig(
    "llama", SIZE, 16, 24, 2, 4, 2, 4, 64, RopeConfig(), (None, None), tie_word_embeddings=True, bos_token_id=0
)


@pytest.fixture
def panel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Panel]:
    monkeypatch.setattr(Panel, "made", [])
    model = from_config(CONFIG)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(6)
    panel = writing(model, TOKENIZER, "def f", 16)
    panel.controls["show"].value = AS_IT_COMES
    panel.model = model
    yield panel
    panel.stop()
    assert panel.wait(20)


def page(panel: Panel) -> str:
    return next(w for w in panel.widget.children if "labllm-text" in getattr(w, "_dom_classes", ())).value


def run(panel: Panel) -> None:
    panel.run()
    assert panel.wait(60)


def test_run_writes_what_generation_gives(panel: Panel):
    run(panel)
    ids = generate_cached(panel.model, [prompt_ids(CONFIG, TOKENIZER, "def f")], 16)[0]
    assert not panel.errors and panel.job.done == 16
    assert panel.table.value.count("<tr>") == 1 + 16
    assert "the first token comes after" in panel.sentence.value
    assert TOKENIZER.decode(ids)[0] in page(panel)


def test_what_is_typed_is_cut_into_tokens_at_once(panel: Panel):
    panel.controls["prompt"].value = "return <x>"
    assert "&lt;" in page(panel) and "<x>" not in page(panel)
    assert not panel.busy and "press Run" in panel.sentence.value


def test_another_prompt_takes_the_answer_away_and_the_old_one_brings_it_back(panel: Panel):
    run(panel)
    answered = panel.table.value
    panel.controls["prompt"].value = "x"
    assert panel.table.value == ""
    panel.controls["prompt"].value = "def f"
    assert panel.table.value == answered


def test_stop_keeps_what_is_written(panel: Panel):
    panel.controls["show"].value = "slow motion"
    panel.run()
    panel.stop()
    assert panel.wait(20)
    assert panel.job.done < 16 and "stopped" in panel.status.value


def test_a_prompt_that_does_not_fit_is_said_in_the_panel(panel: Panel):
    panel.controls["prompt"].value = "x " * 70
    run(panel)
    assert "leaves room for" in panel.error.value
    panel.errors.clear()


def test_the_maintainers_check_passes(panel: Panel, capsys: pytest.CaptureFixture[str]):
    self_check()
    assert "3 controls moved, Run gave 4 rows" in capsys.readouterr().out


def test_the_maintainers_check_leaves_what_was_written(panel: Panel):
    run(panel)
    before = (page(panel), panel.table.value, panel.sentence.value, panel.status.value, panel.image.value)
    self_check()
    assert before == (page(panel), panel.table.value, panel.sentence.value, panel.status.value, panel.image.value)
    panel.redraw()
    assert page(panel) == before[0] and "finished: 16 results" in panel.status.value
