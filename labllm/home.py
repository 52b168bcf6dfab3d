"""Where a learner's own things live: records measured on this machine, progress, predictions.

One folder for all of them, outside the repository, so that pulling a newer version never touches them:
`$LABLLM_HOME` where it is set, otherwise the platform's folder for user data.
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
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"LABLLM_HOME must name a folder, and {folder} is a file")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
