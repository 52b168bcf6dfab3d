"""torchrun's line is right for one node, where it is run, and for several, where every node gets the same."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from labllm.cli import app
from labllm.parallel.torchrun import torchrun_line

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from labllm.parallel import device, joined, rank, world

with joined():
    x = torch.full((1,), float(rank() + int(sys.argv[1])), device=device())
    dist.all_reduce(x)
    print(f"rank {rank()} of {world()} has {x.item():g}", flush=True)
"""


def test_the_line_of_one_node_runs(tmp_path: Path) -> None:
    script = tmp_path / "a script.py"
    script.write_text(SCRIPT)
    line = torchrun_line(str(script), ["10"], gpus=2)
    command = [sys.executable, "-m", "torch.distributed.run", *shlex.split(line)[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert all(f"rank {number} of 2 has 21" in done.stdout for number in (0, 1)), done.stdout


def test_nodes_meet_at_an_address() -> None:
    line = torchrun_line("train.py", nodes=2, gpus=8, address="10.0.0.1", port=5000).split()
    assert line[:2] == ["torchrun", "--nnodes=2"] and line[-2:] == ["--nproc-per-node=8", "train.py"]
    assert "--rdzv-endpoint=10.0.0.1:5000" in line and "--rdzv-backend=c10d" in line


@pytest.mark.parametrize(
    ("options", "why"),
    [({"nodes": 0}, "at least 1"), ({"gpus": 0}, "at least 1"), ({"nodes": 2}, "2 nodes need the address")],
)
def test_what_cannot_be_started_is_refused(options: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        torchrun_line("train.py", **options)


def test_the_command_prints_the_line_and_says_where_to_run_it() -> None:
    one = CliRunner().invoke(app, ["torchrun", "train.py", "--gpus", "2", "--", "--steps", "3"])
    assert one.exit_code == 0
    assert "torchrun --standalone --nproc-per-node=2 train.py --steps 3\n" in one.output
    many = CliRunner().invoke(app, ["torchrun", "train.py", "--nodes", "3", "--gpus", "8"])
    assert "--rdzv-endpoint=HOST:29500" in many.output and "each of the 3 nodes; put the address" in many.output
    assert CliRunner().invoke(app, ["torchrun", "train.py", "--nodes", "0"]).exit_code == 2
