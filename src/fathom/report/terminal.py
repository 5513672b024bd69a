"""The report as lines of text: its sections in order."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from fathom.analysis.results import Device, Examination
from fathom.errors import BadInputError
from fathom.report import (
    account,
    findings,
    heading,
    kinds,
    leads,
    money,
    opening,
    roofline,
    sections,
    table,
    trials,
)

MARGIN = 1


def page(
    examination: Examination,
    width: int,
    *,
    top: int | None,
    rank: int | None,
    with_roofline: bool = False,
    profiled: bool = False,
) -> Iterator[Text]:
    """The whole report, one Text per line of at most `width` cells.

    Raises BadInputError if `rank` was not recorded.
    """
    detailed = _detailed(examination.devices, rank)
    width -= 2 * MARGIN
    for paragraph in _paragraphs(examination, detailed, width, top, with_roofline, profiled):
        lines = list(paragraph)
        if lines:
            yield Text()
            for line in lines:
                line.rstrip()
                line.truncate(width, overflow="ellipsis")
                yield Text(" " * MARGIN).append_text(line)
    yield Text()


def _paragraphs(
    examination: Examination,
    detailed: list[Device],
    width: int,
    top: int | None,
    with_roofline: bool,
    profiled: bool,
) -> Iterator[list[Text] | Iterator[Text]]:
    if examination.integrity.ok:
        yield opening.section(examination, width)
    yield heading.headline(examination.sounding)
    yield heading.integrity(examination.integrity, width)
    yield heading.step_lines(examination.step, width)
    yield kinds.section(examination.kinds, width)
    yield account.section(examination.account, width, every=top is None)
    if not any(entry.what == "findings" for entry in examination.abstained):  # other kinds of steps have none
        unseen, stepped = findings.unseen_of(examination.abstained), heading.stepped(examination.step)
        yield findings.section(examination.findings, unseen, width, stepped)
    yield leads.section(examination.leads, width)
    yield trials.section(examination.what_if)
    if len(examination.devices) > 1:
        yield sections.devices(examination.devices, width)
    for device in detailed:
        if len(examination.devices) > 1:
            yield [Text(f"rank {device.rank} · {device.device} {device.name}".rstrip(), "bold")]
        yield table.stacked(device, width)
        if device.ledger:
            yield table.rows(device, width, top)
            if profiled and device.observer_ms is not None:
                yield table.rows(table.as_profiled(device), width, top)
            yield sections.utilisation(device, width)
            yield sections.micro_steps(device, width)
            yield sections.regions(device, width, top)
        if with_roofline:
            yield roofline.roofline(device, width, top)
    yield sections.slow(examination)
    yield _facts(examination, width)
    yield sections.abstained(examination.abstained, width, every=top is None)


def _facts(examination: Examination, width: int) -> Iterator[Text]:
    yield from sections.facts("input", examination.input, width)
    yield from sections.facts("memory", examination.memory, width)
    yield from sections.facts("energy", examination.energy, width)
    yield from money.section(examination.cost, width)


def _detailed(devices: list[Device], rank: int | None) -> list[Device]:
    if rank is None:
        return devices[:1]
    chosen = [device for device in devices if device.rank == rank]
    if not chosen:
        ranks = ", ".join(str(r) for r in sorted({device.rank for device in devices}))
        raise BadInputError(f"Rank {rank} was not recorded; recorded ranks: {ranks or 'none'}.")
    return chosen
