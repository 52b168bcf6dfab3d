"""An excerpt is the source that runs, without its docstring, and is read where it cannot be imported."""

from __future__ import annotations

import inspect
import sys

import pytest

from labllm.ui import excerpt as module
from labllm.ui.excerpt import excerpt


def test_it_is_the_source_with_or_without_the_docstring() -> None:
    whole = excerpt("labllm.ui.excerpt", "excerpt", docstrings=True)
    assert whole.text == inspect.getsource(module.excerpt).rstrip()
    short = excerpt("labllm.ui.excerpt", "excerpt").text
    assert '"""' not in short and short.splitlines()[0] == whole.text.splitlines()[0]
    assert set(short.splitlines()) < set(whole.text.splitlines())


def test_decorators_belong_to_it_and_order_is_as_asked() -> None:
    text = excerpt("labllm.ui.excerpt", "_lines", "Excerpt").text
    assert text.index("def _lines") < text.index("@dataclass(frozen=True)\nclass Excerpt")


def test_a_kernel_is_read_without_running_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.startswith("labllm.kernels.flash")]:
        monkeypatch.delitem(sys.modules, name)
    shown = excerpt("labllm.kernels.flash", "update")
    assert "tl.exp2" in shown.text and shown.origin.endswith("kernels/flash.py")
    assert "labllm.kernels.flash" not in sys.modules
    assert shown._repr_mimebundle_()["text/markdown"].startswith("```python\n# ")


@pytest.mark.parametrize(("name", "what"), [("labllm.nothing", "x"), ("labllm.ui.excerpt", "nothing")])
def test_refuses(name: str, what: str) -> None:
    with pytest.raises(ValueError, match=r"there is no module|has no"):
        excerpt(name, what)
