"""Show findings as text, with two or three lines each in the report and in full for `fathom findings`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from fathom.analysis.entries import Entry
from fathom.analysis.results import Abstained, Claim, Evidence, Examination, Finding, Lead
from fathom.diagnosis import Kind, kinds_of_steps
from fathom.report import heading, leads, own_code, units
from fathom.report.screen import beside, joined, paragraph, part, show, wrapped
from fathom.report.sections import FINDING
from fathom.units import GB, MB

GAIN = 26  # columns
LABEL = 10  # columns
SHOWN = 5  # in the report; `fathom findings` shows all
NO_STEP = "Nothing was checked: findings are about the steps of a program, and none was recorded."
ONLY_REQUESTS = "The checks of steps do not apply, because only requests were recorded."
NONE = "No known cause of lost time was found"
BELOW = " See below for the time of the program's own functions."
ALONE = "Each gain assumes that only its own cause is fixed: fixing several saves less than the sum."
HOST = "The rest of that time becomes waiting, mostly for the host, whose launches set the pace."
LEAST = 12  # columns of text beside a figure
SUITS = 0.1, 1000.0  # values that their unit suits
BYTES = {"MB": MB, "GB": GB}
MEAN = "mean "
LESS = 0.7  # a gain below this share of the device time that a finding claims is explained


def none(examination: Examination) -> str:
    """Return the sentence for a report without findings on steps."""
    every, unseen = len(kinds_of_steps()), unseen_of(examination.abstained)
    if not heading.stepped(examination.step):
        return ONLY_REQUESTS if examination.serving else NO_STEP
    if unseen >= every:
        return f"Nothing was checked: all {every} checks lacked data."
    where = " in the steps" if examination.serving else ""
    return f"{NONE}{where} ({every - unseen} of {every} checks ran)." if unseen else f"{NONE}{where}."


def unseen_of(abstained: Iterable[Abstained]) -> int:
    """Return the number of checks that lacked data."""
    return len({entry.what for entry in abstained if entry.what.startswith(FINDING)})


def section(examination: Examination, width: int) -> Iterator[Text]:
    """Yield the largest findings: gain and title, evidence, and how to read more."""
    findings, noun = examination.findings, examination.step.noun
    yield Text("findings", "bold")
    if not findings:
        below = BELOW if own_code.shown(examination.code) else ""
        yield from _dim(none(examination) + below, width)
    for finding in findings[:SHOWN]:
        yield Text.assemble("  ", (f"{gain_of(finding):<{GAIN}}  ", "green"), (finding.title, "bold"))
        yield from (Text(f"    {line}", "dim") for line in _below(finding, width - 4, noun))
    if len(findings) > SHOWN:
        yield Text(f"  and {len(findings) - SHOWN} more: fathom findings SOUNDING", "dim")
    yield from _dim(not_added(findings), width)


def _dim(text: str, width: int) -> Iterator[Text]:
    return (Text(f"  {line}", "dim") for line in wrapped(text, width))


def not_added(findings: Iterable[Finding]) -> str:
    """Return the sentence that gains do not add up; "" for fewer than two of them."""
    return ALONE if sum(finding.gain_ms is not None for finding in findings) > 1 else ""


def _below(finding: Finding, width: int, noun: str) -> list[str]:
    """Return the first evidence, and the command that explains the finding with its place: one line or two.

    If the place does not fit beside the command, only the file's name and line are shown.
    """
    saved = units.a_day(finding.saves_per_day) if finding.saves_per_day else ""
    explain, at = f"fathom explain {finding.id}", place(finding)
    here = (finding.where.source or "").rpartition("/")[2] or at
    first = shown(finding.evidence[0], None, noun) if finding.evidence else ""
    if (line := _fitting(width, joined(saved, first, explain), at, here)) or not first:
        return [line or units.shorten(joined(saved, explain, here), width)]
    room = width - (len(saved) + 3 if saved else 0)
    return [
        joined(saved, shown(finding.evidence[0], room, noun)),
        _fitting(width, explain, at, here) or explain,
    ]


def _fitting(width: int, line: str, *places: str) -> str:
    """Return the line with the first of the places beside which it fits, "" if it fits with none of them."""
    return next((full for at in places if len(full := joined(line, at)) <= width), "")


def print_findings(
    findings: Sequence[Finding],
    nothing: str = "",
    console: Console | None = None,
    far: Sequence[Lead] = (),
    of: str = "step",
) -> None:
    """Print all findings in full, or `nothing`, then the leads in `far`; shares `of` the step or its mean."""
    show(lambda width: _page(findings, nothing, far, of, width), console)


def _page(findings: Sequence[Finding], none: str, far: Sequence[Lead], of: str, width: int) -> Iterator[Text]:
    for finding in findings:
        yield from _full(finding, of, width)
    if not findings:
        yield Text(none)
    if said := not_added(findings):
        yield from (Text(), Text(said, "dim"))
    yield from leads.every(far, width)


def _full(finding: Finding, of: str, width: int) -> Iterator[Text]:
    yield Text()
    yield Text.assemble((finding.title, "bold"), (f"   {finding.id}", "dim"))
    yield Text.assemble((_label("saves"), "dim"), (gain_of(finding), "green"), (sure(finding, of), "dim"))
    yield from _part("", [units.a_day(finding.saves_per_day), finding.unpredicted], width)
    yield from _part("where", [place(finding)], width)
    yield from _part("evidence", [shown(line) for line in finding.evidence], width)
    yield from _part("costs", claims(finding, of), width)
    yield from _part("", [HOST] if limited(finding) else [], width)
    yield from _part("why", [finding.mechanism], width)
    yield from beside(_label("remedy"), _lines(finding.remedy.rstrip().splitlines()), "dim")
    technique = [f"fathom lab run {finding.technique}"] if finding.technique else []
    yield from beside(_label("try"), _lines(technique), "dim")
    yield from _part("check", [finding.check], width)


def limited(finding: Finding) -> bool:
    """Return whether the gain is much smaller than the device time that the finding claims."""
    taken = sum(claim.ms for claim in finding.claims if claim.entry == Entry.COMPUTE)
    return finding.gain_ms is not None and finding.gain_ms < LESS * taken


def _part(title: str, texts: Sequence[str], width: int) -> Iterator[Text]:
    """Yield the texts that are not empty, wrapped beside the title."""
    for number, text in enumerate(filter(None, texts)):
        yield from paragraph(_label("" if number else title), text, width, label_style="dim")


def _label(title: str) -> str:
    return f"  {title:<{LABEL}}"


def _lines(commands: Iterable[str]) -> Iterator[Text]:
    return (Text(line, "cyan") for line in commands)


def gain_of(finding: Finding) -> str:
    """Return gain, interval and share, as `3.2 ms (2.1–4.3), 12 %`, or that there is none."""
    if finding.gain_ms is None:
        return "not predicted" if finding.claims or finding.unpredicted else "costs no time"
    low_ms = finding.gain_ms if finding.low_ms is None else finding.low_ms
    high_ms = finding.gain_ms if finding.high_ms is None else finding.high_ms
    share = f"{100 * finding.share:.0f} %" if finding.share is not None else ""
    doubt = units.perhaps(finding.gain_ms, low_ms, high_ms)
    return ", ".join(filter(None, (f"{doubt}{units.within(finding.gain_ms, low_ms, high_ms)}", share)))


def sure(finding: Finding, of: str) -> str:
    """Return the base of the share, the confidence, and whether the gain was observed."""
    share = f" of the {of}" if finding.gain_ms is not None and finding.share is not None else ""
    observed = " · observed" if finding.observed else ""
    if observed and finding.predicted_ms is not None:
        observed += f"; predicted {units.significant(finding.predicted_ms, 2)} ms"
    return f"{share} · confidence {100 * finding.confidence:.0f} %{observed}"


def place(finding: Finding) -> str:
    where = finding.where
    return joined(*[*filter(None, (where.source, where.module, where.region, where.family))][:2])


def shown(line: Evidence, width: int | None = None, noun: str = "step") -> str:
    """Return text and figure of the evidence, with the text shortened to fit `width`."""
    unit = line.unit.replace("per step", f"per {noun}")
    figure = f": {_figure(line.value, unit)}".rstrip()
    words = line.text if width is None else units.shorten(line.text, max(width - len(figure), LEAST))
    return words + figure


def _figure(value: float, unit: str) -> str:
    """Return the value with its unit, or a suitable one for a tiny or huge time or size."""
    name, _, per = unit.partition(" ")
    if value and not SUITS[0] <= abs(value) < SUITS[1]:
        if name == "ms":
            return f"{units.duration(value)} {per}"
        if name in BYTES:
            return f"{units.scaled(value * BYTES[name], 'B')} {per}"
    return f"{value:,.0f} {unit}" if value == round(value) else f"{units.significant(value)} {unit}"


def claims(finding: Finding, of: str) -> list[str]:
    """Return the entries of the ledger that the finding claims, largest first, and the sum of the smaller.

    The ledger is of a usual step, so the first line names the step that they are `of` if that is the mean.
    """
    ordered = sorted(finding.claims, key=lambda claim: -claim.ms)
    lines = [claimed(claim) for claim in ordered[:SHOWN]]
    if lines and of.startswith(MEAN):
        lines[0] += f", in the {of}"
    left = ordered[SHOWN:]
    smaller = f"{len(left)} smaller {'entry' if len(left) == 1 else 'entries'}"
    return [*lines, f"{units.duration(sum(c.ms for c in left))} of {smaller}"] if left else lines


def claimed(claim: Claim) -> str:
    name = f"{claim.entry} {claim.detail}".rstrip()
    return f"{units.duration(claim.ms)} of {units.shorten(name, 70)}"


def print_kind(kind: Kind) -> None:
    """Print one kind in full."""
    show(lambda width: _kind(kind, width))


def print_kinds(kinds: Sequence[Kind]) -> None:
    """Print ids and titles, one per line, group by group."""
    wide = max(len(kind.id) for kind in kinds) + 2
    lines = [Text.assemble((f"{kind.id:<{wide}}", "bold"), kind.title) for kind in kinds]
    show(lambda _: lines)


def _kind(kind: Kind, width: int) -> Iterator[Text]:
    yield Text()
    yield Text.assemble((kind.title, "bold"), (f"   {kind.id}", "dim"))
    yield from part("mechanism", wrapped(kind.mechanism, width))
    yield from part("signs", wrapped(kind.shows, width))
    yield from part("remedy", kind.remedy.rstrip().splitlines(), "cyan")
    yield from part("try it here", [f"fathom lab run {name}" for name in kind.techniques], "cyan")
    yield from part("no technique", wrapped("" if kind.techniques else kind.no_technique, width))
    if kind.trial:
        yield from part("measure the gain", [f"fathom run --what-if {kind.trial} -- COMMAND"], "cyan")
    yield from part("read more", kind.references, "dim")
    yield Text()
