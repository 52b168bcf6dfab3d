"""What holds for every test and every notebook that pytest runs: no network, no hub, no learner's data.

Environment variables are set before anything is imported, so that notebooks' kernels and other child processes get
them too; the learner's folder is a temporary one, and another one in each worker of a parallel run.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile

import pytest

LOOPBACK = ("127.", "::1", "::ffff:127.", "localhost")


def pytest_configure(config: pytest.Config) -> None:
    scratch = tempfile.mkdtemp(prefix="labllm-tests-")
    config.add_cleanup(lambda: shutil.rmtree(scratch, ignore_errors=True))
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HOME": f"{scratch}/huggingface",
        "LABLLM_HOME": f"{scratch}/home",
        "IPYTHONDIR": f"{scratch}/ipython",
        "JUPYTER_CONFIG_DIR": f"{scratch}/jupyter",
    }
    sys.addaudithook(loopback_only)


def loopback_only(event: str, arguments: tuple[object, ...]) -> None:
    """Audit hook: a connection or a name look-up that would leave this machine fails the test that tried it."""
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
        host = address[0] if isinstance(address, tuple) else None  # a Unix socket has a path, not a tuple
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        host = arguments[0]
    else:
        return
    if isinstance(host, bytes):
        host = host.decode()
    if isinstance(host, str) and host not in ("", socket.gethostname()) and not host.startswith(LOOPBACK):
        raise RuntimeError(f"a test tried to reach {host}: tests talk to this machine only (127.0.0.1, ::1, localhost)")
