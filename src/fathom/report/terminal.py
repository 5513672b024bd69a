"""The report: its sections in order, as lines on a terminal or as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import TypedDict, Unpack

from rich.console import Console
from rich.text import Text

from fathom.analysis.results import Device, Examination
from fathom.errors import BadInputError, file_error
from fathom.report import (
    account,
    communication,
    findings,
    goodput,
    heading,
    leads,
    own_code,
    sections,
    serving,
    steps,
    table,
    views,
)
from fathom.report.screen import MARGIN, PIPED, show, within_margins
from fathom.visible import visible_line


class View(TypedDict, total=False):
    """The choices of a report, each with the default of `page`.

    `top`: how many families of a group get their own line; None for all. `rank`: the rank whose ledger is
    printed, by default the first. `roofline` adds a table of the ceiling that bounds each family, `profiled`
    the ledger of the profiled steps. `by_launch` gives each launch shape of a kernel its own row.
    """

    top: int | None
    rank: int | None
    roofline: bool
    profiled: bool
    by_launch: bool


def print_report(examination: Examination, console: Console | None = None, **view: Unpack[View]) -> None:
    """Print the report, 40 to 120 columns wide; in plain ASCII on terminals without Unicode.

    Raises BadInputError if the rank of `view` has no ledger.
    """
    show(lambda width: page(examination, width, **view), console)


def save_picture(examination: Examination, path: str | Path, **view: Unpack[View]) -> None:
    """Write the report as a picture of its lines (`.svg`), or as a page (`.html`) of the examination alone.

    Raises BadInputError for any other suffix, for a file that cannot be written, and like `print_report`.
    """
    path = Path(path)
    if path.suffix == ".html":
        from fathom.report.page.page import save_page
        from fathom.report.page.recording import Recording

        return save_page(Recording(examination), path)
    console = Console(record=True, width=PIPED, file=StringIO(), force_terminal=True, highlight=False)
    print_report(examination, console, **view)
    if path.suffix != ".svg":
        raise BadInputError(f"{path} is neither .svg nor .html; give a file name that ends in one of them.")
    title = visible_line(examination.sounding.name or "fathom report")
    try:
        path.write_text(console.export_svg(title=title))
    except OSError as error:
        raise BadInputError(file_error(path, error, "written")) from None
    return None


def page(
    examination: Examination,
    width: int,
    *,
    top: int | None = 12,
    rank: int | None = None,
    roofline: bool = False,
    profiled: bool = False,
    by_launch: bool = False,
) -> Iterator[Text]:
    """Yield the report, one Text per line of up to `width` cells. Raises BadInputError without a ledger."""
    detailed = _detailed(examination.devices, rank)
    several, noun = len(examination.devices) > 1, examination.step.noun
    width -= 2 * MARGIN
    paragraphs = [
        *_above(examination, width, top),
        *(
            part
            for device in detailed
            for part in _device(device, several, width, top, roofline, profiled, by_launch, noun)
        ),
        *_below(examination, width, top),
    ]
    for paragraph in paragraphs:
        lines = list(paragraph)
        if lines:
            yield Text()
            yield from within_margins(lines, width)
    yield Text()


def _above(examination: Examination, width: int, top: int | None) -> Iterator[Iterable[Text]]:
    """Yield the paragraphs above the ledgers."""
    if examination.integrity.ok:
        yield heading.opening(examination, width)
    yield heading.headline(examination.sounding)
    yield heading.integrity(examination.integrity, width)
    yield goodput.section(examination.goodput, width)
    yield from serving.paragraphs(examination.serving, width)
    yield [*heading.step_lines(examination, width), *heading.counted(examination.counted, width)]
    yield steps.kinds_of_steps(examination.kinds, width)
    yield account.section(examination.account, width, every=top is None, noun=examination.step.noun)
    if not any(entry.what == "findings" for entry in examination.abstained):  # other kinds of steps have none
        yield findings.section(examination, width)
    yield leads.section(examination.leads, width)
    yield steps.observed_gains(examination.what_if)
    if len(examination.devices) > 1:
        noun = examination.step.noun
        yield sections.devices(examination.devices, examination.late, width, top is None, noun)
        yield communication.late(examination.late, width)
        yield communication.jitter(examination.jitter, examination.step.timeline_ms, width, top)
        yield communication.pipeline(examination.pipeline, width)
        yield communication.experts(examination.experts, width)
        if top is None:
            yield communication.critical(examination.critical_path, width)


def _device(
    device: Device,
    several: bool,
    width: int,
    top: int | None,
    roofline: bool,
    profiled: bool,
    by_launch: bool,
    noun: str,
) -> Iterator[Iterable[Text]]:
    """Yield the paragraphs about one device: its ledger and related sections."""
    if several:
        yield [Text(f"rank {device.rank} · {device.label} {device.name}".rstrip(), "bold")]
    yield table.stacked(device, width)
    if device.ledger:
        yield table.rows(device, width, top, noun, by_launch)
        if profiled and device.observer_ms is not None:
            yield table.rows(table.as_profiled(device), width, top, noun, by_launch, table.AS_PROFILED)
        yield sections.utilisation(device, width)
        yield views.categories(device, width)
        yield views.shapes(device, width, top)
        yield communication.collectives(device, width, top)
        yield sections.micro_steps(device, width)
        yield sections.regions(device, width, top, noun)
    if roofline:
        yield table.roofline(device, width, top)


def _below(examination: Examination, width: int, top: int | None) -> Iterator[Iterable[Text]]:
    """Yield the paragraphs below the ledgers."""
    yield own_code.section(examination.code, width, every=top is None)
    yield sections.long_steps(examination.long_steps, width)
    yield sections.slow(examination, width)
    yield [
        *sections.facts("input", examination.input, width),
        *sections.facts("memory", examination.memory, width),
        *sections.energy(examination.energy, examination.devices, width),
        *sections.cost(examination.cost, width),
    ]
    yield sections.abstained(examination.abstained, width, every=top is None)


def _detailed(devices: list[Device], rank: int | None) -> list[Device]:
    if rank is None:
        return devices[:1]
    if not devices:
        raise BadInputError("No rank of this recording has a ledger; leave --rank out.")
    chosen = [device for device in devices if device.rank == rank]
    if not chosen:
        ranks = ", ".join(str(r) for r in sorted({device.rank for device in devices}))
        raise BadInputError(f"Rank {rank} has no ledger; use one of: {ranks}.")
    return chosen
