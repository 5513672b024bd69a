"""The result of `fathom tune`, and the list of knobs, for the terminal."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from fathom.report import units
from fathom.report.screen import paragraph, part, show_within_margins
from fathom.tuner import (
    Knob,
    Patch,
    Ranked,
    Ranking,
    Searched,
    Setting,
    Tried,
    Tuned,
    catalogue,
    labelled,
)

NAME, FIGURE = 52, 11
ROWS = 12  # candidates shown
LABEL = 11
KERNEL = 44
VERDICT = {"faster": "bold green", "slower": "red", "refused": "bold red", "inconclusive": "yellow"}
ACCEPT = "Where such a difference is acceptable, search again with --replace --agree SHARE."


def print_tuned(result: Tuned, console: Console | None = None) -> None:
    """Print what was proven, what each setting gained, and what did not pay."""
    show_within_margins(lambda width: _page(result, width), console)


def print_knobs(extra: Sequence[Knob] = ()) -> None:
    """Print every knob with its values, its risk and the findings that suggest it."""
    show_within_margins(lambda width: _knobs([*catalogue(), *extra], width))


def print_ranking(ranking: Ranking, console: Console | None = None) -> None:
    """Print the candidates of `fathom tune kernel`, the fastest first."""
    show_within_margins(lambda width: _ranking(ranking, width), console)


def _ranking(ranking: Ranking, width: int) -> Iterator[Text]:
    yield Text()
    if ranking.searched is not None:
        yield from _searched(ranking.searched, width)
    head = f"{'time over reference':>20}{'of ceiling':>{FIGURE}}  verdict"
    yield Text(f"  {'candidate':<{KERNEL}}{head}", "dim underline")
    shown = ranking.rows[:ROWS] if ranking.searched else ranking.rows
    for row in shown:
        yield from _ranked(row, width)
    if len(ranking.rows) > len(shown):
        yield Text(f"  and {len(ranking.rows) - len(shown)} more (--json lists all)", "dim")
    yield Text()
    network = "without a network" if ranking.isolated else "with a network, which cannot be withheld here"
    yield Text(f"Each candidate ran in a sandbox {network}; the reference is {ranking.reference}.", "dim")
    for note in ranking.notes:
        yield from (Text(line, "dim") for line in textwrap.wrap(note, width))
    yield Text()


def _ranked(row: Ranked, width: int) -> Iterator[Text]:
    ratio = units.MISSING if row.ratio is None else f"{row.ratio:.3f}"
    figures = f"{ratio:>20}{units.percent(row.ceiling):>{FIGURE}}"
    name = units.shorten(labelled(row.candidate, row.choice), KERNEL - 1)
    yield Text.assemble(f"  {name:<{KERNEL}}{figures}  ", (row.verdict, VERDICT.get(row.verdict, "")))
    if len(row.shapes) > 1 and not row.reasons:
        yield Text(f"    {_shapes(row)}", "dim")
    for reason in row.reasons[:1]:
        text = reason.says + (f": {reason.detail}" if reason.detail else "")
        yield from (Text(f"    {line}", "dim") for line in textwrap.wrap(text, width - 4))


def _searched(searched: Searched, width: int) -> Iterator[Text]:
    """Yield the result of a search: the winner, and the counts of proposals."""
    winner = searched.winner
    if winner is None or winner.ratio is None:
        yield Text.assemble((" NOTHING PROVEN ", "bold yellow"), " No proposal is faster for sure.")
    else:
        name = labelled(winner.candidate, winner.choice)
        yield Text.assemble((" PROVEN ", "bold green"), f" {name} takes {winner.ratio:.3f} of the time.")
    counts = f"{searched.tried} proposals in {searched.seconds:.0f} s, {searched.wrong} of them refused"
    yield from paragraph(f"{'search':<{LABEL}}", f"{counts} · seed {searched.seed}", width)
    if searched.file:
        yield from paragraph(f"{'written':<{LABEL}}", searched.file, width)
    yield Text()


def _shapes(row: Ranked) -> str:
    ratios = {name: verdict.ratio for name, verdict in row.shapes.items()}
    return " · ".join(
        f"{n} {units.MISSING if ratio is None else f'{ratio:.3f}'}" for n, ratio in ratios.items()
    )


def _page(result: Tuned, width: int) -> Iterator[Text]:
    yield Text()
    yield from _headline(result, width)
    if result.settings:
        yield Text()
        yield from _settings(result.settings, width)
        yield from _shares(result, width)
    yield from _others("Gained nothing when taken out", result.removed, width)
    yield from _not_offered(result.unproven, width)
    yield from _others("Tried", [row for row in result.tried if row.choice], width)
    yield Text()
    yield from _facts(result, width)
    yield Text()


def _headline(result: Tuned, width: int) -> Iterator[Text]:
    gain, verdict = result.gain, result.verdict
    what = "step" if result.until is None else f"time to a loss of {result.until:g}"
    if gain is None or verdict is None or verdict.interval is None:
        yield Text.assemble((" NOTHING PROVEN ", "bold yellow"), f" No setting shortens the {what} for sure.")
        return
    low, high = (100 * (1 - bound) for bound in reversed(verdict.interval))
    yield Text.assemble((" PROVEN ", "bold green"), f" The {what} is {100 * gain:.1f} % shorter")
    same = ", ".join(agreement.place for agreement in verdict.agreement)
    text = f"99 % interval {low:.1f} to {high:.1f} %, {verdict.timings[0].pairs} pairs"
    yield from paragraph(" " * LABEL, f"{text}; {same} agree" if same else text, width)
    for note in verdict.notes:
        yield from paragraph(" " * LABEL, note, width, "dim")


def _settings(settings: Sequence[Setting], width: int) -> Iterator[Text]:
    head = f"{'predicted':>{FIGURE}}{'realised':>{FIGURE}}"
    yield Text(f"  {'setting':<{NAME}}{head}", "dim underline")
    for setting in settings:
        name = units.shorten(setting.label, NAME - 1)
        figures = f"{units.percent(setting.predicted):>{FIGURE}}{units.percent(setting.realised):>{FIGURE}}"
        yield Text(f"  {name:<{NAME}}{figures}")
        because = "predicted by " + (", ".join(setting.because) or "the account of the step")
        because = because if setting.predicted is not None else "not predicted"
        for text in (because + _risk(setting.changes), setting.code):
            yield from paragraph(" " * 4, text, width, "dim", hyphens=False)


def _risk(changes: str) -> str:
    return "" if changes == "nothing" else f" · may change: {changes}"


def _shares(result: Tuned, width: int) -> Iterator[Text]:
    share = result.predicted_share
    if share is not None:
        text = f"{100 * share:.0f} % of the realised gain was predicted by findings and account."
        yield from (Text(f"  {line}", "dim") for line in textwrap.wrap(text, width - 2))


def _others(title: str, rows: Sequence[Tried], width: int) -> Iterator[Text]:
    room = min(NAME + 10, max((len(row.label) for row in rows[:ROWS]), default=0) + 1)
    lines = [line for row in rows[:ROWS] for line in _tried(row, room, width - 4)]
    lines += [f"and {len(rows) - ROWS} more (--json lists all)"] if len(rows) > ROWS else []
    yield from part(title, lines)


def _tried(row: Tried, room: int, width: int) -> Iterator[str]:
    """Yield the lines of a candidate, with `room` for its name: its gain, and what went wrong with it."""
    gain = ""
    if row.gain is not None:
        gain = f"{100 * abs(row.gain):>6.1f} % {'longer' if row.gain < 0 else 'shorter'}"
    failed = "" if row.status == "done" else row.status + (f": {row.why}" if row.why else "")
    text = "  ".join(filter(None, (gain, failed)))
    indent = f"{units.shorten(row.label, room):<{room}} "
    for line in textwrap.wrap(text, max(width - len(indent), FIGURE)) or [""]:
        yield f"{indent}{line}".rstrip()
        indent = " " * len(indent)


def _not_offered(rows: Sequence[Tried], width: int) -> Iterator[Text]:
    if rows:
        yield from part("Faster, but not offered", [" "])
    for row in rows:
        text = f"{row.label} ({units.percent(row.gain)}): {row.status}" + (f". {row.why}" if row.why else "")
        yield from (Text(f"  {line}") for line in textwrap.wrap(text, width - 4))
    if any(row.status == "differs" for row in rows):
        yield from (Text(f"  {line}", "dim") for line in textwrap.wrap(ACCEPT, width - 4))


def _facts(result: Tuned, width: int) -> Iterator[Text]:
    spent = f"{result.seconds:.0f} of {result.budget_s:.0f} s, {result.runs} runs"
    what = "step" if result.until is None else "time to the loss"
    step = "" if result.step_ms is None else f" · {what} as it is {units.duration(result.step_ms)}"
    load = "" if result.load is None else f" · load {result.load:.1f} per core"
    yield from paragraph(f"{'search':<{LABEL}}", spent + step + load, width)
    if result.file:
        applied = f"fathom run --settings {shlex.quote(_near(result.file))} -- {shlex.join(result.command)}"
        yield from paragraph(f"{'apply':<{LABEL}}", applied, width, hyphens=False)
    if result.patch is not None:
        yield from _patch(result.patch, width)
    yield from paragraph(f"{'recording':<{LABEL}}", _near(result.sounding), width, hyphens=False)
    for number, note in enumerate(result.notes):
        yield from paragraph(f"{'' if number else 'note':<{LABEL}}", note, width)


def _patch(patch: Patch, width: int) -> Iterator[Text]:
    """Yield how to make the settings permanent, and those that need another way."""
    if patch.file:
        ran = "the patched copy ran with the same results" if patch.verified else patch.note
        lines = f"git apply {shlex.quote(_near(patch.file))}", f"{', '.join(patch.knobs)}: {ran}"
        for label, text in zip(("code", ""), lines, strict=True):
            yield from paragraph(f"{label:<{LABEL}}", text, width, hyphens=False)
    if patch.launch:
        yield from paragraph(f"{'launch':<{LABEL}}", patch.launch, width, hyphens=False)
    for knob, why in patch.left.items():
        yield from paragraph(f"{'not in code':<{LABEL}} ", f"{knob}: {why}", width)


def _near(path: str) -> str:
    """Return a path inside the current folder relative to it."""
    inside = Path(path).is_relative_to(Path.cwd())
    return str(Path(path).relative_to(Path.cwd())) if inside else path


def _knobs(knobs: Sequence[Knob], width: int) -> Iterator[Text]:
    for knob in knobs:
        yield Text()
        yield Text.assemble((knob.id, "bold"), f"  {knob.title}", (_risk(knob.changes), "dim"))
        kinds = [*knob.suggested_by, *(kind for value in knob.values for kind in value.suggested_by)]
        rows = {
            "values": " · ".join(dict.fromkeys(value.name for value in knob.values)),
            "by hand": knob.code,
            "needs": ", ".join(knob.needs),
            "findings": ", ".join(dict.fromkeys(kinds)),
        }
        for label, text in rows.items():
            yield from paragraph(f"  {label:<{LABEL}}", text, width, hyphens=False)
    yield Text()
