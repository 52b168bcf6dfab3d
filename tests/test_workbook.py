from __future__ import annotations

from pathlib import Path

import pytest

from labllm.workbook import reset, start


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "notebooks").mkdir()
    for name in ("00_start_here", "02_kv_cache"):
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(f"original {name}")
    return tmp_path


def test_first_start_copies_and_the_second_does_nothing(house: Path):
    assert [path.name for path in start(house).made] == ["00_start_here.ipynb", "02_kv_cache.ipynb"]
    again = start(house)
    assert (again.made, again.outdated) == ([], [])


def test_answers_are_never_overwritten(house: Path):
    start(house)
    answer = house / "work" / "02_kv_cache.ipynb"
    answer.write_text("my answer")
    (house / "notebooks" / "02_kv_cache.ipynb").write_text("newer")
    started = start(house)
    assert answer.read_text() == "my answer"
    assert (started.made, started.outdated) == ([], [answer])


def test_reset_keeps_every_old_copy(house: Path):
    start(house)
    answer = house / "work" / "02_kv_cache.ipynb"
    for text in ("first try", "second try"):
        answer.write_text(text)
        fresh, kept = reset("2", house)
        assert fresh == answer and fresh.read_text() == "original 02_kv_cache"
        assert kept is not None and kept.read_text() == text
    assert len(list((house / "work").glob("02_kv_cache*.ipynb"))) == 3
    assert start(house).outdated == []


def test_reset_keeps_no_copy_that_nobody_changed(house: Path):
    start(house)
    for _ in range(3):
        assert reset("02", house)[1] is None
    (house / "notebooks" / "02_kv_cache.ipynb").write_text("newer")
    fresh, kept = reset("02", house)
    assert (fresh.read_text(), kept) == ("newer", None)
    assert len(list((house / "work").glob("02_kv_cache*.ipynb"))) == 1


def test_an_unchanged_copy_of_unknown_origin_is_kept_unless_it_is_the_lab_itself(house: Path):
    start(house)
    (house / "work" / ".origins.json").unlink()
    assert reset("02", house)[1] is None
    (house / "work" / ".origins.json").unlink()
    (house / "notebooks" / "02_kv_cache.ipynb").write_text("newer")
    kept = reset("02", house)[1]
    assert kept is not None and kept.read_text() == "original 02_kv_cache"


def test_reset_works_before_the_first_start(house: Path):
    fresh, kept = reset("00", house)
    assert fresh.read_text() == "original 00_start_here" and kept is None


@pytest.mark.parametrize("number", ["7", "two", "../02", ""])
def test_an_unknown_lab_is_refused_with_those_that_exist(house: Path, number: str):
    with pytest.raises(ValueError, match="the labs are 00, 02"):
        reset(number, house)


def test_lost_origins_lose_only_the_hint(house: Path):
    start(house)
    (house / "work" / ".origins.json").write_text("{broken")
    (house / "notebooks" / "02_kv_cache.ipynb").write_text("newer")
    assert start(house).outdated == []
    assert (house / "work" / "02_kv_cache.ipynb").read_text() == "original 02_kv_cache"
