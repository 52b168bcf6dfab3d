"""The pinned set and the ranges agree, so that `make lab`, conda and `pip install labllm[lab]` give what was tested."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11.2", "3.12.1", "3.13.0")
PLATFORMS = ("linux", "darwin", "win32")


def pins() -> list[Requirement]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def direct() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = [
        *project["dependencies"],
        *(name for extra in project["optional-dependencies"].values() for name in extra),
    ]
    return [requirement for line in listed if (requirement := Requirement(line)).name != "labllm"]


def chosen(name: str, python: str, platform: str) -> list[str]:
    """The versions of `name` that pip installs from the pinned set."""
    where = {"python_full_version": python, "python_version": python.rsplit(".", 1)[0], "sys_platform": platform}
    return [
        str(pin.specifier).removeprefix("==")
        for pin in pins()
        if canonicalize_name(pin.name) == canonicalize_name(name) and (not pin.marker or pin.marker.evaluate(where))
    ]


@pytest.mark.parametrize("requirement", direct(), ids=lambda requirement: requirement.name)
def test_each_direct_dependency_is_pinned_once_within_its_range(requirement: Requirement):
    for python, platform in product(PYTHONS, PLATFORMS):
        versions = chosen(requirement.name, python, platform)
        if requirement.marker and not requirement.marker.evaluate({"sys_platform": platform}):
            assert versions == []
        else:
            assert len(versions) == 1 and requirement.specifier.contains(versions[0]), (python, platform)


def test_every_pin_is_one_version():
    for pin in pins():
        assert str(pin.specifier).startswith("==") and "*" not in str(pin.specifier), pin
        assert all(len(chosen(pin.name, *where)) <= 1 for where in product(PYTHONS, PLATFORMS)), pin


def test_cuda_libraries_are_left_to_torch():
    assert [pin.name for pin in pins() if pin.name.startswith(("nvidia-", "cuda-"))] == []


def test_conda_takes_the_pinned_set():
    assert "      - -r requirements.txt\n" in (ROOT / "environment.yml").read_text(encoding="utf-8")
