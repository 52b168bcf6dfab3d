"""What pico may be trained on: licences, versions, cleaning, held-out overlap, copies, packing, crops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from labllm.models.heldout import HELD_OUT_MODULES, module_source
from labllm.models.pico import corpus, overlap, tokens
from labllm.models.pico.collect import distinct, joined
from labllm.models.pico.crops import crops, epoch_starts
from labllm.models.pico.packages import PACKAGES, PERMISSIVE, Package


def random_ids(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 4096, count, dtype=np.uint16)


def installed(site: Path, version: str) -> None:
    info = site / f"sample-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sample\nVersion: {version}\n")
    (site / "sample" / "tests").mkdir(parents=True)
    body = "".join(f"def function_{name}(value):\n    return value\n\n\n" for name in "abcdefghij")
    (site / "sample" / "code.py").write_text("# Copyright somebody\n# A licence\n\n" + body)
    (site / "sample" / "tests" / "code.py").write_text(body)
    (info / "RECORD").write_text("sample/code.py,,\nsample/tests/code.py,,\n")


def test_every_package_is_named_once_with_a_permissive_licence() -> None:
    names = [package.name for package in PACKAGES]
    assert names == sorted(set(names))
    assert {package.licence for package in PACKAGES} <= PERMISSIVE
    assert not any(term in licence for licence in PERMISSIVE for term in ("GPL", "MPL"))


def test_a_package_of_another_version_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    installed(tmp_path, "2.0")
    with pytest.raises(ValueError, match=r"holds sample 2\.0, but .* sample==1\.0"):
        next(corpus.packages(tmp_path, (Package("sample", "1.0", "MIT"),)))
    with pytest.raises(ValueError, match=r"holds absent \(nothing\)"):
        next(corpus.packages(tmp_path, (Package("absent", "1.0", "MIT"),)))


def test_package_files_come_without_tests_and_licence_headers(tmp_path: Path) -> None:
    installed(tmp_path, "1.0")
    (document,) = corpus.packages(tmp_path, (Package("sample", "1.0", "MIT"),))
    assert document.path == "sample/code.py"
    assert document.text.startswith("def function_a")


def test_generated_files_are_no_code() -> None:
    written = "def add(first, second):\n    return first + second\n\n" * 10
    assert corpus.is_code(written)
    assert not corpus.is_code("TABLE = [\n" + "0x1234, 0x5678, 91011,\n" * 50)
    assert not corpus.is_code(written + "x = '" + "a" * 2000 + "'\n")
    assert not corpus.is_code("")


def test_the_library_is_read_without_the_held_out_modules() -> None:
    documents = list(corpus.standard_library(HELD_OUT_MODULES))
    assert {document.source for document in documents} == {corpus.LIBRARY, corpus.LIBRARY_TESTS} or {
        document.source for document in documents
    } == {corpus.LIBRARY}
    paths = {document.path for document in documents}
    assert "argparse.py" in paths
    assert not paths & {name.replace(".", "/") + ".py" for name in HELD_OUT_MODULES}


def test_share_of_held_out_shingles() -> None:
    held_out = random_ids(1000, 0)
    known = overlap.HeldOutShingles([held_out])
    assert known.share(held_out[200:700]) == 1.0
    assert known.share(random_ids(1000, 1)) == 0.0
    half = np.concatenate([held_out[:512], random_ids(512, 2)])
    assert known.share(half) == pytest.approx(0.5, abs=0.02)
    assert known.share(held_out[: overlap.SHINGLE - 1]) == 0.0


def test_shingles_depend_on_every_token_and_its_place() -> None:
    ids = random_ids(overlap.SHINGLE, 3)
    (original,) = overlap.shingles(ids)
    for place in range(overlap.SHINGLE):
        changed = ids.copy()
        changed[place] ^= 1
        assert overlap.shingles(changed)[0] != original
    assert overlap.shingles(ids[::-1].copy())[0] != original


def test_near_copies_are_refused() -> None:
    seen = overlap.SeenTexts()
    first = random_ids(2000, 4)
    copy = first.copy()
    copy[1000] ^= 1
    assert seen.admit(first)
    assert not seen.admit(copy)
    assert seen.admit(random_ids(2000, 5))


def test_exact_copies_are_dropped() -> None:
    documents = [corpus.Document("a", "x.py", "one"), corpus.Document("b", "y.py", "one")]
    assert [document.path for document in distinct(documents)] == ["x.py"]


@pytest.mark.parametrize("count", [0, 1, 7, 10_000])
def test_packed_ids_come_back(count: int) -> None:
    ids = random_ids(count, 6)
    back = tokens.unpack(tokens.pack(ids))
    assert back.dtype == np.uint16
    np.testing.assert_array_equal(back, ids)


def test_a_foreign_token_file_is_refused() -> None:
    with pytest.raises(ValueError, match="no packed token file"):
        tokens.unpack(b"something else")


def test_decoding_gives_any_text_back() -> None:
    text = module_source("textwrap")
    tokenizer = tokens.train_tokenizer([text], vocab_size=400)
    for sample in (text, "naïve ☃ \t\r\n\0 end", "   \n\n  x"):
        (ids,) = tokens.encode(tokenizer, [sample])
        assert tokenizer.decode(ids.tolist()) == sample
    assert tokenizer.token_to_id(tokens.END_OF_TEXT) == 0


def test_documents_are_joined_behind_separators() -> None:
    np.testing.assert_array_equal(joined([np.array([5, 6], np.uint16), np.array([7], np.uint16)]), [0, 5, 6, 0, 7])


def test_an_epoch_visits_each_part_as_often_as_its_weight_says() -> None:
    sections, weights = {"library": 1000, "packages": 3000}, {"library": 3, "packages": 1}
    starts = epoch_starts(sections, weights, 10, torch.Generator().manual_seed(0))
    visits = torch.zeros(4001)
    for start in starts.tolist():
        visits[start : start + 10] += 1
    assert visits[:1000].mean() == pytest.approx(3, abs=0.1)
    assert visits[1000:4000].mean() == pytest.approx(1, abs=0.1)
    assert not any(start < 1000 < start + 10 for start in starts.tolist())


def test_crops_are_runs_of_the_stream() -> None:
    ids = torch.arange(500, dtype=torch.int32)
    stream = crops(ids, {"all": 500}, {"all": 1}, length=16, batch=64, seed=1)
    for _ in range(3):
        window = next(stream)
        assert window.shape == (64, 17)
        assert window.dtype == torch.int64
        assert (window.diff(dim=1) == 1).all()


def test_a_corpus_shorter_than_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="holds a window of 16 tokens"):
        next(crops(torch.arange(9, dtype=torch.int32), {"all": 9}, {"all": 1}, length=16, batch=1, seed=0))
