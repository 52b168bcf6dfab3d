"""The machinery of claims: verdicts are well formed, every claim is found, shown as text and HTML, and listed."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import labllm.claims
from labllm import claims
from labllm.claims import registry
from labllm.claims.claim import Claim, Verdict
from labllm.cli import app


def test_a_condition_goes_with_holds_when_alone() -> None:
    assert Verdict("holds when", "x.", "it rains").text == "holds when it rains"
    for word, condition in (("holds", "it rains"), ("holds when", "")):
        with pytest.raises(ValueError, match="condition"):
            Verdict(word, "x.", condition)


def test_every_file_with_claims_is_registered() -> None:
    modules = {
        m.name: importlib.import_module(f"labllm.claims.{m.name}") for m in pkgutil.iter_modules(claims.__path__)
    }
    assert {name for name, module in modules.items() if hasattr(module, "CLAIMS")} == set(registry.FILES)


def test_letters_are_found_and_case_counts() -> None:
    assert [claims.get(c.letter) for c in claims.claims()] == list(claims.claims())
    with pytest.raises(ValueError, match=r"no claim .H.; there are .*h"):
        claims.get("H")


def test_two_claims_cannot_share_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "FILES", ("roofline", "roofline"))
    with pytest.raises(ValueError, match="letter 'd'"):
        registry.claims.__wrapped__()


@pytest.mark.parametrize("claim", claims.claims(), ids=lambda claim: claim.letter)
def test_a_claim_has_sources_and_without_records_no_figure_of_a_machine(claim: Claim) -> None:
    assert claim.statement.endswith(".") and claim.sources
    verdict = claim.verdict([])
    assert verdict.word == "no record yet" or (not claim.ladders and not verdict.date)


def test_only_the_ladders_of_a_claim_reach_its_evidence() -> None:
    seen = []
    claim = Claim("z", "So.", 1, "", (), lambda records: seen.append(records) or Verdict("holds", ""), ("layer-parts",))
    mine, other = (SimpleNamespace(ladder=name) for name in ("layer-parts", "generation"))
    claim.verdict([mine, other])
    assert seen == [[mine]]


def test_a_card_and_the_table_say_the_same_in_text_and_html() -> None:
    card, table = claims.show("i"), claims.table()
    for text in (str(card), card._repr_html_(), str(table), table._repr_html_()):
        assert "350 GFLOP" in text and "349 GFLOP for one token" in text
    assert "HOLDS WHEN an inference is one token" in str(card)
    assert len(table.rows) == len(claims.claims())


def test_the_table_fits_a_terminal_and_names_claims_in_order_of_lab_and_letter() -> None:
    lines = CliRunner().invoke(app, ["claims"], env={"COLUMNS": "80"}).output.splitlines()
    assert all(len(line) <= 80 for line in lines)
    starts = [(line[1:4].strip(), line[6:9].strip("│ ")) for line in lines if line[1:4].strip().isdigit()]
    in_order = sorted(starts, key=lambda start: (start[0], start[1].isupper(), start[1]))
    assert starts == in_order == [(f"{c.lab:02d}", c.letter) for c in claims.claims()]
    assert "A letter names each" in " ".join(lines[:2])


def test_html_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = dataclasses.replace(claims.get("i"), statement="<b>1 & 2</b>.")
    monkeypatch.setattr(labllm.claims.display, "claims", lambda: (bad,))
    assert "&lt;b&gt;1 &amp; 2&lt;/b&gt;" in claims.table()._repr_html_()


def test_the_command_lists_all_and_shows_one() -> None:
    listed = CliRunner().invoke(app, ["claims"], env={"COLUMNS": "200"})
    assert listed.exit_code == 0 and all(c.statement[:12] in listed.output for c in claims.claims())
    one = CliRunner().invoke(app, ["claims", "i"])
    assert one.exit_code == 0 and "arXiv:2001.08361" in one.output
    assert CliRunner().invoke(app, ["claims", "?"]).exit_code == 2
