from __future__ import annotations

from pathlib import Path

import pytest

from labllm.home import checkout
from labllm.home import home as home_folder


def test_named_folder_is_made(home: Path):
    assert not home.exists()
    assert home_folder() == home
    assert home.is_dir()


def test_tilde_is_the_users_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("LABLLM_HOME", "~/mine")
    assert home_folder() == tmp_path / "mine"


def test_default_is_the_platforms_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("LABLLM_HOME")
    monkeypatch.setattr("labllm.home.user_data_path", lambda name, appauthor: tmp_path / name)
    assert home_folder() == tmp_path / "labllm"


def test_a_file_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABLLM_HOME", str(tmp_path / "file"))
    with pytest.raises(NotADirectoryError, match="LABLLM_HOME must name a folder"):
        home_folder()


def test_checkout_is_this_repository(root: Path):
    assert checkout() == root


def test_without_the_repository_the_clone_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("labllm.home.__file__", str(tmp_path / "labllm" / "home.py"))
    with pytest.raises(FileNotFoundError, match="clone it"):
        checkout()
