"""Kinds of steps, measured gains of trials, long and slow steps, and the regions that the program names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from fathom.analysis.results import Examination, FunctionTime, Region, StepKind, Trial
from fathom.report import goodput, own_code, sections, steps, units
from fathom.report.page.recording import WIDTH, Recording, Section
from fathom.units import NS_PER_S

REGIONS = 40


def section(recording: Recording) -> Section | None:
    """Return what is known about steps beyond the ledger; None if that is nothing."""
    result = recording.examination
    micro = (line for device in result.devices[:1] for line in sections.micro_steps(device, WIDTH))
    regions = next((device.regions for device in result.devices if device.regions), [])
    content = {
        "kinds": [_kind(kind) for kind in result.kinds] if len(result.kinds) > 1 else [],
        "verdicts": [(kind.name, kind.verdict.headline) for kind in result.kinds if kind.verdict],
        "notes": [(kind.name, kind.note) for kind in result.kinds if kind.note],
        "trials": [_trial(trial) for trial in result.what_if],
        "long": list(_unusual(result)),
        "micro": list(_plain(micro)),
        "code": [_function(function) for function in own_code.shown(result.code)],
        "of_code": own_code.about(result.code) if result.code else "",
        "regions": [_region(region) for region in regions[:REGIONS]],
    }
    if not any(content[name] for name in content if name != "of_code"):
        return None
    return Section("steps", "Steps", content | {"noun": recording.noun})


def goodput_section(recording: Recording) -> Section | None:
    """Return where the job's wall time goes; None if only its steps are known."""
    result = recording.examination.goodput
    if result is None:
        return None
    wall_ns = sum(result.entries_ns.values())
    rows = [
        (entry, goodput.MEANINGS.get(entry, ""), f"{ns / NS_PER_S:,.3f}", units.share(ns, wall_ns))
        for entry, ns in result.entries_ns.items()
        if ns
    ]
    return Section("goodput", "Goodput", {"verdict": goodput.verdict(result), "rows": rows})


def _kind(kind: StepKind) -> dict[str, object]:
    """Return a row of the table of kinds, with the columns of the terminal's."""
    return {"name": kind.name, "used": kind.used, "why": kind.why, **steps.figures(kind)}


def _trial(trial: Trial) -> tuple[str, str, str]:
    """Return the gain, what was disabled, and the means of the step without and with it."""
    mean = f"{units.duration(trial.baseline_mean_ms)} → {units.duration(trial.trial_mean_ms)}"
    return steps.gain(trial), steps.TRIALS.get(trial.kind, trial.kind), mean


def _unusual(result: Examination) -> Iterator[str]:
    """Yield sentences about rare long steps, and about steps that were recorded because they were slow."""
    yield from _plain(sections.long_steps(result.long_steps, WIDTH))
    yield from _plain(line for line in sections.slow(result, WIDTH) if not line.style)


def _plain(lines: Iterable[Text]) -> Iterator[str]:
    return (line.plain.removeprefix("outliers").removeprefix("micro").strip() for line in lines)


def _function(function: FunctionTime) -> tuple[str, str, str, str]:
    share = f"{100 * function.share:.1f} ± {100 * function.error:.1f} %"
    return own_code.place(function), units.duration(function.ms), share, own_code.lines(function)


def _region(region: Region) -> tuple[str, str, str, str, str]:
    device = units.duration(region.device_ms)
    calls = f"{region.count:.3g}"
    return region.name, units.duration(region.ms), units.duration(region.own_ms), calls, device
