"""Python code of the program that takes long: a GPU waits for it, and a CPU computes nothing meanwhile."""

from __future__ import annotations

import math

from msgspec.structs import replace

from fathom.analysis import where
from fathom.analysis.entries import Entry
from fathom.analysis.results import LedgerRow
from fathom.diagnosis.grouping import grouped
from fathom.diagnosis.rules.candidates import contended, in_mean_step, ms_of, on_processor, rows, spent
from fathom.diagnosis.rules.host.element_loops import costly_loops
from fathom.diagnosis.rules.host.launch_bound import PYTHON, late_launches
from fathom.diagnosis.rules.host.waits import beneath_saving, claim_of
from fathom.diagnosis.rules.rule import Candidate, Candidates, Claim, Evidence, NotAnalysed, Outcomes, rule
from fathom.diagnosis.signals import Computing, HostLine, Signals
from fathom.units import US_PER_MS

LEAST = 0.25  # of the step: small models spend some Python time on every op
LONG = 0.05  # of the step, with an idle device
OWN = 0.5  # of a line's samples: below it, the line mostly calls libraries
BRIEF_US = 50.0  # at one instruction: a call of NumPy takes up to 10, longer ones compute on arrays
MANY, TINY_US = 5_000, 10.0  # calls of ops in a step, and the mean time of one
UNEVEN = 3.0  # times a typical step: a longer mean of profiled steps shows interruptions on a busy host
WITHIN = 100  # ops per call by the program: beyond it, ops such as aten::gru contain the loop
SHOWN = 3  # lines
VECTORISED = """\
losses = F.cross_entropy(scores.flatten(0, 1), tags.flatten())    # all tokens in one call, not one by one
step = torch.compile(step)                                        # where the calls have to stay
"""
FEWER = """\
step = torch.compile(step)                                        # removes the Python around each operation
optimizer = torch.optim.AdamW(parameters, fused=True)             # where the line is optimizer.step()
"""
IN_LIBRARIES = "Call fewer and larger operations where libraries run Python, or compile the step"
LEFT = 0.1  # of the time, at least: the ops still have to be called
CALL_MS = 5e-3  # of Python per op that the program calls: 0.7 µs in an MLP on an EPYC, 4.6 on a slower host
CALLED = 0.5  # of the time of lines that call libraries
INTERRUPTED = "other programs interrupted the profiled steps, and these pauses look like Python"
UNKNOWN = 1.0  # of the gain, if a function may as well wait for native code, such as NumPy on large arrays
DOUBT = 0.4  # of the gain, if the program's own code takes the time


@rule("host-python")
def interpreting(signals: Signals) -> Outcomes:
    """On a GPU, find pauses in which the host runs Python; on a CPU, use Python's share of the step."""
    if on_processor(signals):
        return _on_processor(signals)
    late = {candidate.kind: candidate for candidate in late_launches(signals)}
    if late.keys() & {"host-python", "host-thread-contention"}:
        lines = sampled(signals)
        place = {"source": lines[0].source} if lines else {}
        return [replace(candidate, **place) for kind, candidate in late.items() if kind == "host-python"]
    return _beside_launches(signals)


def _beside_launches(signals: Signals) -> Candidates:
    """Find long computations of the program itself; other pauses are launches or the Python of each op."""
    own: Computing = signals["host.computing"]
    python, step = spent(signals, PYTHON), signals["step.timeline_ms"]
    if own.idle_ms < LONG * step or not python:
        return
    yield Candidate(
        claims=[],
        evidence=[
            Evidence("long Python computations between ops", own.count, "per step"),
            Evidence("device idle meanwhile", own.idle_ms, "ms per step"),
            *_shares(signals),
        ],
        changes=("python=0.1",),
        spill=(PYTHON,),
        part=min(own.idle_ms / python, 1.0),
        doubt=0.25,
        confidence=0.8,
        check="fathom what-if SOUNDING 'python=0.1'",
        source=next((line.source for line in sampled(signals)), own.source),
    )


def sampled(signals: Signals) -> list[HostLine]:
    """Return the lines that ran Python, longest first; empty without sampled stacks.

    These are lines of the program's own code, or, if there are none, lines that call libraries.
    """
    lines = [line for line in _python_lines(signals) if not native(line)]
    return [line for line in lines if line.own >= OWN] or lines


def native(line: HostLine) -> bool:
    """Return whether the line waits for native code, such as NumPy on large arrays."""
    return line.dwell_us is not None and line.dwell_us > BRIEF_US


def _python_lines(signals: Signals) -> list[HostLine]:
    lines: list[HostLine] = signals.get("host.lines").value or []
    saving = beneath_saving(signals)
    return [line for line in lines if line.entry == PYTHON and line not in saving]


def _interpreted(signals: Signals) -> list[Claim]:
    """Return Python time by row of the ledger, except for lines that wait for native code.

    For lines that only call libraries, half of the time counts, because the library's work may be necessary.
    """
    lines = {line.detail: line for line in _python_lines(signals)}
    saving = {line.detail for line in beneath_saving(signals)}
    claims = [(row, lines.get(row.detail)) for row in rows(signals, PYTHON) if row.detail not in saving]
    return [
        replace(row, ms=row.ms if line is None or line.own >= OWN else CALLED * row.ms)
        for row, line in claims
        if line is None or not native(line)
    ]


def _doubt(signals: Signals, claims: list[Claim]) -> float:
    """Return the doubt about the gain: libraries' work may be necessary in full, or not at all."""
    everything = {row.detail: row.ms for row in rows(signals, PYTHON)}
    uncounted = sum(everything[claim.detail] - claim.ms for claim in claims)
    return min(max(DOUBT, uncounted / ms_of(claims) + LEFT), 1.0) if claims else DOUBT


def _shares(signals: Signals) -> list[Evidence]:
    """Return evidence of the longest lines, with their share of Python's time."""
    python, says = spent(signals, PYTHON), "share of Python's time in"
    return [
        Evidence(f"{says} {where(line.function, line.source)}", 100 * line.ms / python, "%")
        for line in sampled(signals)[:SHOWN]
    ]


def _on_processor(signals: Signals) -> Outcomes:
    """Scale Python's share to the clean step, because a profiler lengthens the pauses between ops."""
    if not costly_loops(signals):
        yield from _many_calls(signals)
    claims = _interpreted(signals)
    profiled, saved = ms_of(claims), _in_clean_step(signals, ms_of(claims))
    left = _left(signals, saved)
    share = (
        profiled / signals["step.timeline_ms"] * min(saved / (in_mean_step(signals, profiled) or 1.0), 1.0)
    )
    if not any("::" in name for name in signals["host.ops"]):
        yield from _without_ops(signals)
        return
    if (1 - left) * share < (1 - LEFT) * LEAST:
        yield from _in_functions(signals, [line for line in sampled(signals) if line.own >= OWN])
        return
    if contended(signals) and signals["step.timeline_ms"] > UNEVEN * signals["step.typical_ms"]:
        yield NotAnalysed(INTERRUPTED)
        return
    python, lines = spent(signals, PYTHON) / signals["step.timeline_ms"], sampled(signals)
    of_libraries = bool(lines) and all(line.own < OWN for line in lines)
    yield Candidate(
        claims=claims,
        evidence=[
            Evidence("Python between ops", 100 * python, "% of the profiled step"),
            Evidence("calls of ops", _calls(_ops(signals)), "per step"),
            *_shares(signals),
        ],
        gain_ms=(1 - left) * saved,
        doubt=_doubt(signals, claims),
        confidence=0.7,
        check=_check(signals, claims, left),
        source=lines[0].source if lines else None,
        action=IN_LIBRARIES if of_libraries else "",
        remedy=FEWER if of_libraries else "",
        general=True,  # loops over elements claim their own Python first
    )


def _in_clean_step(signals: Signals, ms: float) -> float:
    """Return the milliseconds of the mean clean step for those of the profiled one: at most its Python."""
    clean: dict[tuple[str, str], float] = signals.get("step.clean_ledger").value or {}
    python = sum(ms for (entry, _), ms in clean.items() if entry == PYTHON)
    return min(in_mean_step(signals, ms), max(python, 0.0) if clean else math.inf)


def _ops(signals: Signals) -> list[LedgerRow]:
    return [row for row in signals["step.ledger"] if row.entry == Entry.OPS]


def _calls(ops: list[LedgerRow]) -> float:
    """Return the calls in a usual step, which the ledger shows; other steps may make more."""
    return sum(row.count or 0.0 for row in ops)


def _left(signals: Signals, ms: float) -> float:
    """Return the share of `ms` of Python that remains, because the program still calls its ops."""
    called = CALL_MS * signals.number("host.called_ops", 0.0)
    return min(max(LEFT, called / ms), 1.0) if ms > 0 else LEFT


def _check(signals: Signals, claims: list[Claim], left: float) -> str:
    """Return the replay that shortens Python as the finding does: necessary work of libraries stays."""
    factor = 1 - (1 - left) * ms_of(claims) / spent(signals, PYTHON)
    return f"fathom what-if SOUNDING 'python={factor:.2g}'"


def _many_calls(signals: Signals) -> Candidates:
    """Find steps of very many ops with hardly any work each, without a loop over elements to blame."""
    ops = _ops(signals)
    calls, work = _calls(ops), ms_of(ops)
    if calls < MANY or work * US_PER_MS > TINY_US * calls or work < OWN * signals["step.timeline_ms"]:
        return
    if calls > WITHIN * signals.number("host.called_ops", calls):
        return
    yield Candidate(
        claims=[Claim(row.entry, row.detail, row.ms) for row in ops if row.is_overhead],
        evidence=[
            Evidence("calls of ops", calls, "per step"),
            Evidence("mean time of a call", work * US_PER_MS / calls, "µs"),
            *_shares(signals),
        ],
        costless=True,
        unpredicted="the gain depends on how many calls one operation on a whole tensor replaces",
        confidence=0.8,
        title="Very many calls of operations with hardly any work",
        action="Call fewer operations on larger tensors, or compile the step",
        remedy=VECTORISED,
        mechanism="Each call of an op takes some microseconds for itself, however little it computes.",
        check="count the calls of ops per step after the change, in the ledger's column `runs`",
    )


def _without_ops(signals: Signals) -> Outcomes:
    """Find loops in programs without ops: many short instructions could be array operations instead."""
    lines = [(line, line.dwell_us or line.around_us) for line in _python_lines(signals)]
    if lines and all(dwell is None for _, dwell in lines):
        why = "the time at one Python instruction is unknown: too few samples, or a busy host"
        yield NotAnalysed(why)
    yield from _in_functions(signals, [line for line, dwell in lines if dwell and dwell <= BRIEF_US])


def _in_functions(signals: Signals, among: list[HostLine]) -> Candidates:
    """Find functions that compute in Python for long, while other Python code only calls ops."""
    functions = grouped(among, lambda line: f"{line.function} ({line.source.rpartition(':')[0]}")
    long = {name for name, lines in functions.items() if ms_of(lines) >= LONG * signals["step.timeline_ms"]}
    short = [line for name, lines in functions.items() if name not in long for line in lines]
    for name in functions:
        if name in long:  # with the short functions that only it calls
            yield _in_function(signals, [*functions[name], *(line for line in short if line.caller == name)])


def _in_function(signals: Signals, lines: list[HostLine]) -> Candidate:
    known = [dwell for line in lines if (dwell := line.dwell_us or line.around_us)]
    names = list(dict.fromkeys(line.function for line in lines))[:SHOWN]
    pace = [Evidence("longest mean time at one instruction", max(known), "µs")] if known else []
    return Candidate(
        claims=[claim_of(line) for line in lines],
        evidence=[
            Evidence(f"Python time in {' and '.join(names)}", ms_of(lines), "ms per step"),
            *pace,
            *_shares(signals),
        ],
        gain_ms=(1 - LEFT) * in_mean_step(signals, ms_of(lines)),
        doubt=0.3 if known else UNKNOWN,
        confidence=0.75 if known else 0.5,
        check=f"look at the function {lines[0].function} at {lines[0].source}",
        source=lines[0].source,
    )
