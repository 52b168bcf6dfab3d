"""The README's Python runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_what_the_readme_shows_runs(capsys) -> None:
    assert BLOCKS
    for block in BLOCKS:
        exec(block, {})
    assert capsys.readouterr().out.strip()
