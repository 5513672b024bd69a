"""`fathom explain`: the catalogue of findings, whole and in words."""

from __future__ import annotations

import json

import pytest

from fathom.diagnosis.kinds import kinds, kinds_of_steps, resembling
from fathom.diagnosis.rules import rules
from tests.support.running import run_fathom


def test_the_list_has_every_kind_on_a_line(tmp_path):
    done = run_fathom("explain", "--list", cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(kinds())
    assert all(kind.title in line for kind, line in zip(kinds().values(), lines, strict=True))


@pytest.mark.parametrize("name", ["input-too-few-workers", "kernels-uncoalesced", next(reversed(kinds()))])
def test_one_kind_is_told_in_full(tmp_path, name):
    done = run_fathom("explain", name, cwd=tmp_path)
    kind, said = kinds()[name], " ".join(done.stdout.split())
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 120
    for text in (kind.title, kind.mechanism, kind.shows, *kind.references):
        assert " ".join(text.split()) in said
    as_json = run_fathom("explain", name, "--json", cwd=tmp_path)
    assert json.loads(as_json.stdout)["remedy"] == kind.remedy
    for technique in kind.techniques:
        assert f"fathom lab run {technique}" in said


@pytest.mark.parametrize("words", [[], ["no-such-kind"], ["too-few", "--list"], ["\x1b[31m"], ["x" * 10_000]])
def test_what_is_no_kind_is_refused_in_one_sentence(tmp_path, words):
    done = run_fathom("explain", *words, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and len(done.stderr.splitlines()) == 1


def test_every_kind_that_is_listed_has_a_rule_that_finds_it():
    assert {kind for rule in rules() for kind in rule.kinds} == set(kinds_of_steps())


def test_a_part_of_a_name_finds_its_kinds():
    assert "input-too-few-workers" in resembling("workers")
    assert resembling("input-too-few-worker")[0] == "input-too-few-workers"
