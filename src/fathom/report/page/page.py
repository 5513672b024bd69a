"""Write the page: its sections in order, its figures, and the script that draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from fathom.analysis.results import Device, Examination
from fathom.errors import BadInputError, file_error
from fathom.report import heading, units
from fathom.report import serving as of_requests
from fathom.report.ledger import groups, step_ms
from fathom.report.page import (
    account,
    figure,
    findings,
    kernels,
    ledger,
    machine,
    ranks,
    resources,
    roofline,
    serving,
    steps,
    timeline,
    work,
)
from fathom.report.page.colours import of_entry
from fathom.report.page.recording import BarPart, Recording, Section, Top
from fathom.report.table import speed_of_light
from fathom.visible import visible

HERE = Path(__file__).parent
_SECTIONS: tuple[Callable[[Recording], Section | None], ...] = (
    serving.section,
    account.section,
    findings.section,
    ledger.section,
    work.section,
    steps.section,
    roofline.section,
    timeline.section,
    kernels.section,
    resources.input_section,
    resources.memory_section,
    resources.power_section,
    ranks.section,
    steps.goodput_section,
    machine.section,
    machine.integrity,
)


def save_page(recording: Recording, path: Path) -> None:
    """Write the report as one HTML file that loads nothing. Raises BadInputError if it cannot be written."""
    write(page(recording), path)


def write(text: str, path: Path) -> None:
    """Write a page. Raises BadInputError if the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInputError(file_error(path, error, "written")) from None


def save_figures(recording: Recording, folder: Path) -> list[Path]:
    """Write the figures as SVG and PNG. Raises BadInputError without altair, or if they cannot be written."""
    return figure.save([drawn for section in sections(recording) for drawn in section.figures], folder)


def sections(recording: Recording) -> list[Section]:
    """Return the sections for which something was recorded."""
    return [section for make in _SECTIONS if (section := make(recording)) is not None]


def page(recording: Recording) -> str:
    """Return the page."""
    result = recording.examination
    return rendered(result.sounding.name or "sounding", _top(result), sections(recording))


def rendered(name: str, top: Top, shown: list[Section]) -> str:
    """Return a page of these sections below `top`: verdict, facts, tiles."""
    from markupsafe import Markup

    drawn = figure.available()
    specs = {f.id: figure.specification(f) for s in shown for f in s.figures} if drawn else {}
    return (
        _templates()
        .get_template("page.html")
        .render(
            name=name,
            top=top,
            sections=shown,
            drawn=drawn,
            no_figures=figure.EXTRA,
            specs={key: Markup(figure.embedded(spec)) for key, spec in specs.items()},
            library=Markup(figure.library()) if specs else "",
            style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
            script=Markup((HERE / "page.js").read_text(encoding="utf-8")),
        )
    )


@cache  # it keeps what it has compiled
def _templates() -> Any:
    """Return the templates of the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _shown(value: Any) -> Any:
    """Return a value as HTML; markup that the page made itself is kept."""
    return visible(value) if type(value) is str else value


def _top(result: Examination) -> Top:
    """Return the verdict, the facts of the recording, and the step's figures."""
    lines = [line.plain for line in heading.headline(result.sounding)]
    verdict = result.verdict if result.integrity.ok else None
    device = next((d for d in result.devices if d.ledger), None)
    steps = (*heading.step_lines(result, 200), *heading.counted(result.counted, 200))
    return Top(
        requests=of_requests.verdict(result.serving) if result.integrity.ok else "",
        headline=verdict.headline if verdict else "",
        facts=lines[1:],
        figures=list(_figures(result, device)),
        step=[line.plain.strip() for line in steps],
        bound=verdict.bound if verdict else "",
        advice=heading.advice(result) if verdict else "",
        late=heading.beyond_verdict(result) if verdict else "",
        damaged=not result.integrity.ok,
        bar=_bar(device) if device else [],
    )


def _figures(result: Examination, device: Device | None) -> Iterator[tuple[str, str]]:
    step = result.step
    best = step.clean_ms if step.clean_ms is not None else step.timeline_ms
    if result.serving is not None:
        yield from of_requests.figures(result.serving)
    elif best is not None:
        yield units.duration(best), f"{'clean' if step.clean_ms is not None else 'profiled'} {step.noun}"
    if device and device.at_ceiling_ms is not None:
        yield units.duration(device.at_ceiling_ms), speed_of_light(device)
    shares = device.utilisation if device else None
    if shares is not None and shares.mfu is not None:
        yield f"{units.share(shares.mfu, 1)} %", "MFU"
    rates = {"tokens/s": step.tokens_per_s, "samples/s": step.samples_per_s} if not result.serving else {}
    yield from ((units.scaled(rate), noun) for noun, rate in rates.items() if rate)
    if result.energy and result.energy.per_step_j is not None:
        yield units.joules(result.energy.per_step_j), f"energy per {step.noun}"
    if result.cost:
        prices = {
            "million tokens": result.cost.per_million_tokens,
            "million samples": result.cost.per_million_samples,
        }
        costs = {noun: value for noun, value in prices.items() if value is not None}
        costs = (
            costs or {f"million {step.noun}s": 1e6 * result.cost.per_step} if result.cost.per_step else costs
        )
        for noun, value in costs.items():
            yield units.amount(value, result.cost.currency), f"cost per {noun}"


def _bar(device: Device) -> list[BarPart]:
    """Return the groups of the step as parts of one bar."""
    total = step_ms(device)
    return [
        BarPart(
            group.kind.title or group.kind.name,
            units.share(group.ms, total),
            round(100 * group.ms / total, 3),
            of_entry(group.kind.name),
        )
        for group in groups(device)
        if total > 0
    ]
