"""Where things live: a learner's own data, and the checkout that the labs come from.

`home()` holds records measured on this machine, progress and predictions. It lies outside the repository, so that
pulling a newer version never touches it: `$LABLLM_HOME` where it is set, otherwise the platform's folder for user
data. `checkout()` is the repository that this package runs from; labs, like `kernels/`, are there and not in a wheel.
"""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_data_path


def home() -> Path:
    """The learner's data folder, made when it is missing.

    Raises:
        NotADirectoryError: the path exists and is a file.
    """
    chosen = os.environ.get("LABLLM_HOME")
    folder = Path(chosen).expanduser() if chosen else user_data_path("labllm", appauthor=False)
    if not folder.is_dir():
        if folder.exists():
            raise NotADirectoryError(f"LABLLM_HOME must name a folder, and {folder} is a file")
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def checkout() -> Path:
    """The top folder of the repository that this package was imported from.

    Raises:
        FileNotFoundError: the package was installed from a wheel, without the repository around it.
    """
    root = Path(__file__).resolve().parents[1]
    if not (root / "pyproject.toml").is_file():
        raise FileNotFoundError(
            "the labs are in the repository and not in the installed package: clone it and run `pip install -e .` there"
        )
    return root
