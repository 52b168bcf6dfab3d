from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labllm.bench.store import SHIPPED
from labllm.notebooks import picture
from labllm.notebooks.__main__ import run
from labllm.notebooks.index import END, NEXT, START, describe, labs, with_table

FACTS = {"needs": ["01"], "hardware": "any CPU", "minutes": 90, "run_all_minutes": 2}


def lab(number: str, title: str, *sources: str, **facts: object) -> nbformat.NotebookNode:
    cells = [new_markdown_cell(f"# Lab {number}: {title}"), *map(new_code_cell, sources)]
    cells.append(new_markdown_cell(f"## Reflection\n\n{NEXT} to be generated\n\nand more words"))
    return new_notebook(cells=cells, metadata={"labllm": FACTS | facts})


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A repository with two labs and the records that README's picture is drawn from."""
    (tmp_path / "notebooks").mkdir()
    records = tmp_path / "labllm" / "records"
    records.mkdir(parents=True)
    for path in SHIPPED.glob("decode-attention.*.json"):
        shutil.copy(path, records)
    (tmp_path / "README.md").write_text(f"# labllm\n\n{START}\n{END}\n\n{picture.START}\n{picture.END}\n\nafter\n")
    checks = 'labs.check("append", f)\ncheck(\n    "kv-bytes", g)\ncheck("append", f)'
    nbformat.write(lab("01", "Roofline", needs=[]), tmp_path / "notebooks" / "01_roofline.ipynb")
    nbformat.write(lab("02", "KV cache", checks), tmp_path / "notebooks" / "02_kv_cache.ipynb")
    return tmp_path


def test_a_lab_is_described_by_its_own_file(house: Path):
    first, second = labs(house / "notebooks")
    assert (first.number, first.title, first.needs, first.exercises) == ("01", "Roofline", (), ())
    assert (second.name, second.exercises) == ("02 KV cache", ("append", "kv-bytes"))


def test_run_writes_the_table_and_the_next_lines_once(house: Path):
    assert run(house, [], check=True, fill=False) != []
    assert run(house, [], check=False, fill=False) == []
    readme = (house / "README.md").read_text()
    row = "| [02 KV cache](notebooks/02_kv_cache.ipynb) | 01 | any CPU | 90 / 2 | `append`, `kv-bytes` |"
    assert row in readme and readme.endswith("\n\nafter\n")
    first, last = ((house / "notebooks" / name).read_text() for name in ("01_roofline.ipynb", "02_kv_cache.ipynb"))
    assert f"{NEXT} [02 KV cache](02_kv_cache.ipynb)" in first
    assert f"{NEXT} this is the last one so far." in last
    assert run(house, [], check=True, fill=False) == []


def test_the_picture_is_drawn_with_its_sentence(house: Path):
    run(house, [], check=False, fill=False)
    readme = (house / "README.md").read_text()
    sentence = picture.picture(SHIPPED).sentence
    assert "H200" in sentence and f"![{sentence}]({picture.FILE.as_posix()})\n\n{sentence}\n" in readme
    assert (house / picture.FILE).read_bytes().startswith(b"\x89PNG")


def test_check_names_what_differs_and_writes_nothing(house: Path):
    run(house, [], check=False, fill=False)
    path = house / "notebooks" / "01_roofline.ipynb"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    before = path.read_bytes()
    assert [sentence.split()[0] for sentence in run(house, [], check=True, fill=False)] == ["01_roofline.ipynb"]
    assert path.read_bytes() == before


def test_a_new_lab_changes_the_lab_before_it_and_the_table(house: Path):
    run(house, [], check=False, fill=False)
    nbformat.write(lab("03", "Paged attention", needs=["02"]), house / "notebooks" / "03_paged_attention.ipynb")
    named = {sentence.split()[0] for sentence in run(house, [], check=True, fill=False)}
    assert named == {"02_kv_cache.ipynb", "03_paged_attention.ipynb", "README.md"}


@pytest.mark.parametrize(
    ("name", "notebook", "sentence"),
    [
        ("roofline.ipynb", lab("01", "x"), "two-digit number first"),
        ("01_x.ipynb", new_notebook(metadata={"labllm": FACTS}), "starts with the lab's title"),
        ("01_x.ipynb", new_notebook(cells=[new_markdown_cell("# Lab 01: x")]), "lacks needs, hardware, minutes"),
    ],
)
def test_what_a_lab_lacks_is_said(name: str, notebook: nbformat.NotebookNode, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        describe(Path(name), notebook)


def test_a_missing_next_line_is_said(house: Path):
    bare = lab("04", "Fusion")
    bare.cells.pop()
    nbformat.write(bare, house / "notebooks" / "04_fusion.ipynb")
    with pytest.raises(ValueError, match="one line, in one Markdown cell"):
        run(house, [], check=True, fill=False)


def test_a_readme_without_markers_is_refused():
    with pytest.raises(ValueError, match="must hold the two lines"):
        with_table("# labllm", [])


def test_this_repository_is_stored_normalised(root: Path):
    ran = subprocess.run(
        [sys.executable, "-m", "labllm.notebooks", "--check"], cwd=root, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
