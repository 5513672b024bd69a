"""The tips as data: references resolve, everything that judges has a tip, and texts are short and plain."""

from __future__ import annotations

import re

import pytest
import typer.main
from msgspec.structs import replace

from fathom.analysis.measures.evaluate import catalogue as measures
from fathom.cli.main import app
from fathom.data import load
from fathom.diagnosis.kinds import kinds
from fathom.gauges.catalogue import BY_ID
from fathom.lab import techniques
from fathom.machine.checks import checks
from fathom.tips import AREAS, CONDITIONS, PLANNED, By, catalogue, chosen, tips

LONGEST_TITLE, LONGEST_SENTENCE, MOST_SENTENCES = 80, 25, 3
KNOWN = {
    "checks": lambda: {check.id for check in checks()},
    "findings": lambda: set(kinds()),
    "techniques": lambda: set(techniques()),
    "ceilings": lambda: set(BY_ID),
    "measures": lambda: {row.name for row in measures()},
}


OF_PARTS = {"checks", "findings", "techniques"}  # they name their tips


def referred(field: str) -> set[str]:
    return {name for tip in tips() for name in getattr(tip.by, field)}


def test_there_are_250_tips_or_more_and_no_two_are_alike():
    assert len(tips()) >= 250
    for part in ("id", "title", "text"):
        values = [getattr(tip, part) for tip in tips()]
        assert len(values) == len(set(values))


@pytest.mark.parametrize("field", sorted(KNOWN.keys() - OF_PARTS))
def test_every_reference_resolves(field):
    assert referred(field) - KNOWN[field]() == set()


@pytest.mark.parametrize("field", sorted(OF_PARTS))
def test_every_check_kind_and_technique_belongs_to_a_tip(field):
    assert KNOWN[field]() - referred(field) == set(), "give it `tips`: ids of tips, or an area"


@pytest.mark.parametrize("area", AREAS)
def test_rows_leave_the_parts_that_name_them_out(area):
    assert not OF_PARTS & {field for row in load("fathom.tips", area).values() for field in row.get("by", ())}


def test_a_part_that_names_an_area_is_a_tip_in_its_own_words(monkeypatch):
    new = replace(
        checks()[0],
        id="kernel.new_switch",
        fix="Turn it on.",
        why="It pays.",
        tips=["os", "cost.price-of-a-day"],
    )
    monkeypatch.setattr(catalogue, "checks", lambda: (new,))
    listed = {tip.id: tip for tip in catalogue.tips.__wrapped__()}
    own = listed["os.new-switch"]
    assert (own.title, own.text, own.by) == ("Turn it on", "It pays.", By(checks=("kernel.new_switch",)))
    assert listed["cost.price-of-a-day"].by.checks == own.by.checks


def test_a_part_cannot_name_a_tip_that_does_not_exist(monkeypatch):
    monkeypatch.setattr(catalogue, "checks", lambda: (replace(checks()[0], tips=["os.nothing"]),))
    with pytest.raises(ValueError, match=r"names the tip os\.nothing"):
        catalogue.tips.__wrapped__()


def test_every_command_exists_or_is_planned():
    root = typer.main.get_command(app)
    for line in referred("commands") - set(PLANNED):
        command = root
        for word in line.split():
            if word.startswith("--"):
                assert word in {option for param in command.params for option in param.opts}, line
            else:
                command = command.commands[word]
    assert not set(PLANNED) & set(root.commands), "no longer planned: take it out of PLANNED"


def test_a_tip_is_embodied_or_says_why_no_program_can_judge_it():
    for tip in tips():
        embodied = any(getattr(tip.by, field) for field in tip.by.__struct_fields__)
        assert embodied != bool(tip.no_program), tip.id
        assert set(tip.applies) <= set(CONDITIONS) and tip.area in AREAS, tip.id


def test_titles_are_short():
    for tip in tips():
        assert len(tip.title) <= LONGEST_TITLE and not tip.title.endswith("."), tip.title


def test_texts_are_a_few_short_sentences():
    for text in [text for tip in tips() for text in (tip.text, tip.no_program) if text]:
        sentences = re.split(r"(?<=[.!?])\s+(?=[A-Z`0-9])", text)
        assert len(sentences) <= MOST_SENTENCES and text.endswith("."), text
        assert max(len(sentence.split()) for sentence in sentences) <= LONGEST_SENTENCE, text


def test_areas_choose_their_tips():
    assert {tip.area for tip in chosen(["os", "cost"])} == {"os", "cost"}
    assert chosen([]) == list(tips())
