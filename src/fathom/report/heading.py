"""The top of a report: the verdict, facts and problems of the recording, and the step."""

from __future__ import annotations

import re
import shlex
import signal
import textwrap
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from rich.text import Text

from fathom.analysis import CPU
from fathom.analysis.results import (
    CountedSteps,
    Examination,
    Finding,
    Integrity,
    LongSteps,
    Problem,
    RecordingSummary,
    Step,
    Verdict,
    step_noun,
)
from fathom.diagnosis import kinds
from fathom.report import serving, units
from fathom.report.communication import straggler
from fathom.report.screen import MARGIN, USUAL, joined

MOST = 4  # lines of the verdict
MOST_NAMED = 4  # ranks whose programs are named
MOST_ALIKE, ALIKE = 8, 3  # ranks with the same problem that are all listed; and listed if there are more
PLACES = {
    "input": "the input pipeline",
    "host": "the host's work",
    "launch": "kernel launches",
    "communication": "communication",
    "copy": "copies",
    "memory": "memory traffic",
    "compute": "computation",
}  # by bound
NOTHING = "Fathom found no remedy for this bottleneck."
LARGER = 0.3  # of the time is extra time of long steps: then the usual step is not the main cost
UNEVEN = 0.02  # relative difference of mean and median at which both are shown: gains are shares of the mean
OTHERS = "other programs used {:.0f} % of the processors meanwhile, and hardly any was free: steps are longer"
REQUESTS = "no steps: the recording holds requests only"
NO_STEP = "no step was recorded"
REPEATS = "no steps are marked: a window is one repetition of the work, which may be only part of a step"
UNMARKED = "no steps are marked: the window is a stretch of the program, not a step"
NO_STEPS = {"repetition": REPEATS, "host": UNMARKED}  # by the source of the steps
SIGNALLED = 128  # exit statuses above it mean that a signal ended the program
_GOOD_ENDS = {"", "finished", "stopped"}


def opening(examination: Examination, width: int) -> Iterator[Text]:
    """Yield the verdict on requests and on the step, the cost of rare long steps, and the straggler.

    The verdict takes at most MOST lines, more on narrow terminals.
    """
    yield from (Text(line, "bold green") for line in _wrapped(serving.verdict(examination.serving), width))
    verdict = examination.verdict
    if verdict is None:
        return
    lines = _wrapped(verdict.headline, width)
    yield from (Text(line, "bold") for line in lines)
    yield from (Text(line, "bold yellow") for line in _wrapped(beyond_verdict(examination), width))
    least = 1 if width >= USUAL - 2 * MARGIN else MOST - 1
    left = _wrapped(advice(examination), width, max_lines=max(MOST - len(lines), least), placeholder=" …")
    yield from (Text(line, "bold green" if verdict.action else "dim") for line in left)


def _wrapped(text: str, width: int, **options: Any) -> list[str]:
    """Wrap the text to `width` columns without separating numbers from their units."""
    bound = re.sub(r"(?<=\d) (?=%|ms|µs|s\b)", "\u00a0", text)
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(bound, width, **options)]


def beyond_verdict(examination: Examination) -> str:
    """Return sentences on rare long steps and the straggler, which the verdict does not cover."""
    return " ".join(filter(None, (_long_steps(examination.long_steps), straggler(examination))))


def _long_steps(outliers: list[LongSteps]) -> str:
    """Return a sentence on rare long steps that take much of the time; empty without them."""
    rare = max(outliers, key=lambda steps: steps.share, default=None)
    if rare is None or rare.share < LARGER:
        return ""
    often, times = how_often(rare, outliers), "takes" if rare.every or rare.n == 1 else "take"
    return (
        f"Rare long steps add {100 * rare.share:.0f} % of the total time: {often} {times} "
        f"{units.duration(rare.ms)} instead of {units.duration(rare.usual_ms)}."
    )


def how_often(rare: LongSteps, outliers: list[LongSteps]) -> str:
    """Return words like `one train step in 50`, or `93 of 709 train steps` if they are not regular.

    The rank is named if there are `outliers` of several ranks.
    """
    step, whose = step_noun(rare.kind), f" of rank {rare.rank}" if len(outliers) > 1 else ""
    often = f"one {step} in {rare.every}" if rare.every else f"{rare.n} of {rare.of} {step}s"
    return often + whose


def advice(examination: Examination) -> str:
    """Return the first remedy and its saving; empty without a verdict.

    If the remedy concerns another bound than the verdict's, the text says where the saving is.
    """
    verdict = examination.verdict
    if verdict is None:
        return ""
    chosen = next((finding for finding in examination.findings if finding.id == verdict.finding), None)
    action = verdict.action or ("" if verdict.bound == "unknown" else NOTHING)
    if verdict.action and chosen is not None and (place := _elsewhere(examination, verdict, chosen)):
        known = chosen.gain_ms is not None
        first = f"Most is saved in {place}." if known else f"One finding is about {place}."
        unexplained = "" if verdict.explained_by else "No finding explains that."
        action = " ".join(filter(None, (unexplained, first, action)))
    return " ".join(filter(None, (action, _saves(chosen, basis(examination.step)))))


def _elsewhere(examination: Examination, verdict: Verdict, finding: Finding) -> str:
    """Return where the finding's time is spent, if not in the verdict's bound, else "".

    A processor launches no kernels.
    """
    kind = kinds().get(finding.id)
    on_gpu = any(device.device != CPU for device in examination.devices)
    bounds = [bound for bound in kind.bound if on_gpu or bound != "launch"] if kind else []
    if not bounds or verdict.bound == "unknown" or finding.id in verdict.explained_by:
        return ""
    return PLACES.get(bounds[0], "") if verdict.bound not in bounds else ""


def basis(step: Step) -> str:
    """Return the base of the findings' shares: `step`, or `mean step (13.9 ms)` if steps are uneven."""
    if step.basis_ms is None or step.basis_ms != step.clean_mean_ms or step.clean_mean_ms == step.clean_ms:
        return step.noun
    return f"mean {step.noun} ({units.duration(step.basis_ms)})"


def _saves(finding: Finding | None, of: str) -> str:
    """Return a sentence like `Saves 3.2 ms (2.1 to 4.3), 12 % of the step.`; empty without a gain."""
    if finding is None or finding.gain_ms is None or finding.low_ms is None or finding.high_ms is None:
        return ""
    low, high = units.significant(finding.low_ms, 2), units.significant(finding.high_ms, 2)
    share = f", {100 * finding.share:.0f} % of the {of}" if finding.share is not None else ""
    worth = f", {units.a_day(finding.saves_per_day)}" if finding.saves_per_day else ""
    word = "May save" if units.perhaps(finding.gain_ms, finding.low_ms, finding.high_ms) else "Saves"
    return f"{word} {units.significant(finding.gain_ms, 2)} ms ({low} to {high}){share}{worth}."


def headline(of: RecordingSummary) -> list[Text]:
    """Return name and command, then machine, versions, date, and how the program ended."""
    lines = [Text(of.name or "sounding", "bold")]
    command = (PurePath(word).name if word.startswith("/") else word for word in of.command)
    lines.append(Text(shlex.join(command), "cyan"))
    if of.settings:
        lines.append(Text("settings " + joined(*(f"{k}: {v}" for k, v in of.settings.items())), "cyan"))
    lines.append(Text(joined(*_origin(of)), "dim"))
    if of.ended not in _GOOD_ENDS:
        lines.append(Text(f"the program {_ended(of.ended, of.exit_status, of.error)}", "yellow"))
    return [line for line in lines if line.plain]


def _ended(ended: str, status: int | None, error: str | None) -> str:
    words = {
        "no-steps": "ran to its end without a step",
        "exception": f"ended with {error or 'an exception'}",
        "killed": "was killed",
        "interrupted": "was interrupted",
    }.get(ended, ended)
    if ended in ("exited", "crashed") and status is not None:
        names = {number.value: number.name for number in signal.Signals}
        died_of = status - SIGNALLED
        name = names.get(died_of, f"signal {died_of}")
        return f"died of {name}" if died_of > 0 else f"exited with status {status}"
    return words if not status else f"{words} (exit status {status})"


def _origin(of: RecordingSummary) -> Iterator[str]:
    """Yield the machine, the number of ranks, versions and the date, as far as they are known."""
    yield of.machine
    if of.ranks > 1:
        yield _ranks(of)
    yield from (
        f"{name} {of.versions[name]}" for name in ("torch", "cuda", "driver") if of.versions.get(name)
    )
    if of.created_ns:
        yield units.date(of.created_ns)


def _ranks(of: RecordingSummary) -> str:
    """Return the number of ranks, or the program of each rank, as of an engine and its workers."""
    names = set(of.programs.values())
    if len(names) == 1 or "" in names or of.ranks > MOST_NAMED or len(of.programs) < of.ranks:
        return f"{of.ranks} ranks"
    return ", ".join(f"rank {rank} {name}" for rank, name in of.programs.items())


def integrity(state: Integrity, width: int) -> list[Text]:
    """Return lines on every problem of the recording, in red if it is damaged; none if it is sound."""
    if state.ok and not state.problems:
        return []
    title = "This recording is damaged. Damaged records are left out of all sums" if not state.ok else "Notes"
    style = "bold red" if not state.ok else "yellow"
    problems = (line for problem in _few(state.problems) for line in _problem(problem, style, width))
    return [Text(title, style), *problems]


def _few(problems: list[Problem]) -> Iterator[Problem]:
    """Yield the problems; of one id, only the first ALIKE, if more ranks than that have it."""
    seen: dict[str, list[Problem]] = {}
    for problem in problems:
        seen.setdefault(problem.what, []).append(problem)
    for what, alike in seen.items():
        if len({problem.rank for problem in alike}) <= MOST_ALIKE:
            yield from alike
            continue
        yield from alike[:ALIKE]
        more = len(alike) - ALIKE
        yield Problem(what, f"The same problem ({what}) was found {more:,} more times on other ranks.")


def _problem(problem: Problem, style: str, width: int) -> list[Text]:
    text, count = problem.text or problem.what, problem.count
    where = [] if problem.rank is None else [f"rank {problem.rank}"]
    times = [f"{count:,} times"] if count > 1 and str(count) not in text.replace(",", "") else []
    aside = f" ({', '.join(where + times)})" if where or times else ""
    lines = textwrap.wrap(f"{text}{aside}", width, initial_indent="  ✗ ", subsequent_indent="    ")
    return [Text(line, style.removeprefix("bold ")) for line in lines]


def stepped(step: Step) -> bool:
    """Return whether any step was recorded."""
    return step.clean_ms is not None or step.timeline_ms is not None


def counted(steps: list[CountedSteps], width: int) -> Iterator[Text]:
    """Yield how many later steps were only counted, and their usual and rare lengths."""
    for later in steps:
        whose = f" of rank {later.rank}" if len(steps) > 1 else ""
        usual, rare = units.duration(later.usual_ms), units.duration(later.p99_ms)
        text = f"{later.n:,} later steps{whose} were only counted: median {usual}, 99th percentile {rare}"
        yield Text(units.shorten(text, width), "dim")


def step_lines(examination: Examination, width: int) -> list[Text]:
    """Return the step's time with its interval, and its rates, on a second line if they do not fit."""
    step = examination.step
    best = step.clean_ms if step.clean_ms is not None else step.timeline_ms
    if best is None:
        return [Text(REQUESTS, "dim") if examination.serving else Text(NO_STEP, "yellow")]
    phase = "clean" if step.clean_ms is not None else "as profiled"
    kind = "" if step.kind in ("", "step") or step.source in NO_STEPS else f"{step.kind} "
    line = Text.assemble(f"{kind}{step.noun} ", (units.duration(best), "bold green"))
    mean = step.clean_mean_ms if step.clean_ms is not None and step.clean_mean_ms else best
    uneven = f", mean {units.duration(mean)}" if abs(mean - best) > UNEVEN * best else ""
    interval = f", ±{units.duration((step.ci_ms[1] - step.ci_ms[0]) / 2)}" if step.ci_ms else ""
    line.append(f"  ({phase}{interval}{uneven}, n = {step.n})", "dim")
    if step.source in NO_STEPS:
        return [line, Text(NO_STEPS[step.source], "yellow")]
    rates = [f"{units.significant(1000 / mean)} steps/s"] if mean > 0 else []
    rates += [f"{units.scaled(step.samples_per_s)} samples/s"] if step.samples_per_s else []
    rates += [f"{units.scaled(step.tokens_per_s)} tokens/s"] if step.tokens_per_s else []
    a_second = Text("  " + joined(*rates), "bold")
    lines = [line.append_text(a_second)] if len(line) + len(a_second) <= width else [line, a_second]
    if step.others is not None:
        lines.append(Text(f"  {OTHERS.format(100 * step.others)}", "yellow"))
    return lines
