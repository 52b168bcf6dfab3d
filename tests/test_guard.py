"""The rules of the test run itself: no network, no hub, no learner's data."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest


def test_a_connection_that_leaves_the_machine_fails():
    with socket.socket() as out, pytest.raises(RuntimeError, match="this machine only"):
        out.connect(("192.0.2.1", 80))
    with pytest.raises(RuntimeError, match=r"example\.org"):
        socket.getaddrinfo("example.org", 80)


def test_a_connection_to_this_machine_is_let_through():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        server.accept()[0].close()


def test_hub_is_off():
    from huggingface_hub import constants

    assert constants.HF_HUB_OFFLINE


def test_learner_folder_is_not_the_users(home: Path):
    assert os.environ["LABLLM_HOME"] == str(home)
    assert Path.home() not in home.parents
