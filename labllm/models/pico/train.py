"""pico from source to checkpoint: `python -m labllm.models.pico.train packages | collect | train`.

    python -m labllm.models.pico.train packages > pico-packages.txt    # what the corpus is made of, for pip
    python -m pip install --no-deps --target site -r pico-packages.txt
    python -m labllm.models.pico.train collect --site site --data .pico
    python -m labllm.models.pico.train train --data .pico --out pico --seconds 270

`collect` needs the Python version that the model card names (another one gives another corpus and another evaluation
text); `train` runs on any machine and judges the text that `collect` laid down.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from tokenizers import Tokenizer

from labllm.models.evaluate import Quality, evaluate
from labllm.models.load import load
from labllm.models.pico import card, tokens
from labllm.models.pico.collect import collect
from labllm.models.pico.crops import crops
from labllm.models.pico.fit import fit
from labllm.models.pico.network import Network
from labllm.models.pico.packages import PACKAGES
from labllm.models.pico.shape import PICO
from labllm.models.save import save

WEIGHTS = {"standard library": 4, "tests of the standard library": 1, "packages": 1}
_CROPS_A_STEP = {"cuda": 128, "cpu": 4}
_SEED = 20

app = typer.Typer(add_completion=False, help="Make pico: collect its corpus, train it, judge it.")


@app.command("packages")
def packages_command() -> None:
    """Print the packages of the corpus, one `name==version` a line, for `pip install --no-deps -r`."""
    for package in PACKAGES:
        print(f"{package.name}=={package.version}")


@app.command("collect")
def collect_command(
    site: Annotated[Path, typer.Option(help="Folder in which the packages of the corpus are installed.")],
    data: Annotated[Path, typer.Option(help="Folder to write.")],
) -> None:
    """Read the standard library and the packages, hold out the evaluation text, write packed tokens."""
    summary = collect(site, data)
    print(json.dumps({key: summary[key] for key in ("python", "sections", "dropped_documents")}, indent=1))


@app.command("train")
def train_command(
    data: Annotated[Path, typer.Option(help="Folder that `collect` wrote.")],
    out: Annotated[Path, typer.Option(help="Checkpoint folder to write.")],
    seconds: Annotated[float, typer.Option(help="Time for loading, compiling and training together.")] = 270.0,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda" if torch.cuda.is_available() else "cpu",
) -> None:
    """Train on what `collect` wrote, save the checkpoint with its card and record, print the held-out figures."""
    deadline = time.monotonic() + seconds
    summary = json.loads((data / "corpus.json").read_text())
    held_out = json.loads((data / "heldout.json").read_text())
    ids = torch.from_numpy(tokens.unpack((data / "tokens.bin").read_bytes()).astype("int32")).to(device)
    stream = crops(ids, summary["sections"], WEIGHTS, PICO.max_position_embeddings, _CROPS_A_STEP[device], _SEED)
    network = Network(PICO, _SEED, compiled=device == "cuda").to(device)
    print(f"{len(ids):,} tokens on {device}, {seconds - (deadline - time.monotonic()):.0f} s of {seconds:.0f} s used")
    network.warm_up(next(stream))
    print(f"ready to train after {seconds - (deadline - time.monotonic()):.0f} s")
    fitted = fit(network, stream, deadline)
    save(network.llama, out, torch.float16)
    card.write_tokenizer(out, data / "tokenizer.json", PICO.max_position_embeddings)
    record = card.record(
        fitted, judge(out, held_out["sources"], device), summary | {"weights": WEIGHTS}, held_out, device
    )
    card.write(out, record, summary, PICO)
    print(json.dumps(record["held_out"] | record["training"], indent=1))


def judge(folder: Path, texts: list[str], device: str) -> Quality:
    """The checkpoint as it ships, run in float32 over `texts`, each one document behind an end-of-text id."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    documents = [[0, *ids.tolist()] for ids in tokens.encode(tokenizer, texts)]
    num_bytes = sum(len(text.encode()) for text in texts)
    return evaluate(load(folder, device=device, dtype=torch.float32), documents, num_bytes, progress=False)


if __name__ == "__main__":
    app()
