"""The program's own Python takes too long: a device waits for it, and on a processor nothing computes."""

from __future__ import annotations

from msgspec.structs import replace

from fathom.analysis import CPU, where
from fathom.diagnosis.rules.host.launch_bound import PYTHON, late_launches
from fathom.diagnosis.rules.host.waits import beneath_saving
from fathom.diagnosis.rules.rule import Candidate, Claim, Evidence, Found, Looked, Unlooked, rows, rule, spent
from fathom.diagnosis.signals import Computing, HostLine, Signals

LEAST = 0.25  # of the step: small models pay some of it for every op
LONG = 0.05  # of it, on a device that idles meanwhile
OWN = 0.5  # of a line's samples: more of them in libraries, and it only calls them
BRIEF_US = 50.0  # at one instruction: calling NumPy takes up to 10; what takes longer works on the numbers
SHOWN = 3  # lines
LEFT = 0.1  # of it: something has to ask for the ops
CALLED = 0.5  # of the time of lines that call libraries


@rule("host-python")
def interpreting(signals: Signals) -> Looked:
    """On a device, where the host's pauses are Python's; on a processor by its share of the step."""
    if signals.get("step.device").value == CPU:
        return _on_processor(signals)
    late = {candidate.kind: candidate for candidate in late_launches(signals)}
    if late.keys() & {"host-python", "host-thread-contention"}:
        lines = sampled(signals)
        return [_at_line(candidate, lines) for kind, candidate in late.items() if kind == "host-python"]
    return _beside_launches(signals)


def _beside_launches(signals: Signals) -> Found:
    """Long computations of the program's own, where other pauses are launching's or Python's for each op."""
    own: Computing | None = signals.get("host.computing").value
    python, step = spent(signals, PYTHON), signals["step.timeline_ms"]
    if own is None or own.idle_ms < LONG * step or not python:
        return
    part = min(own.idle_ms / python, 1.0)
    yield Candidate(
        kind="host-python",
        claims=[],
        evidence=[
            Evidence("long Python computations between ops", own.count, "a step"),
            Evidence("device idle meanwhile", own.idle_ms, "ms a step"),
            *_shares(signals),
        ],
        changes=("python=0.1",),
        spill=(PYTHON,),
        part=part,
        doubt=0.25,
        confidence=0.8,
        check="fathom what-if SOUNDING 'python=0.1'",
        source=next((line.source for line in sampled(signals)), own.source),
    )


def sampled(signals: Signals) -> list[HostLine]:
    """Lines in which Python ran, longest first; none without sampled stacks.

    Lines of the program's own code, or where there are none, those that call libraries.
    """
    lines = [line for line in _python_lines(signals) if not native(line)]
    return [line for line in lines if line.own >= OWN] or lines


def native(line: HostLine) -> bool:
    """Whether the line waits for native code, as for NumPy on whole arrays."""
    return line.dwell_us is not None and line.dwell_us > BRIEF_US


def _python_lines(signals: Signals) -> list[HostLine]:
    lines: list[HostLine] = signals.get("host.lines").value or []
    saving = beneath_saving(signals)
    return [line for line in lines if line.entry == PYTHON and line not in saving]


def _interpreted(signals: Signals) -> list[Claim]:
    """What Python ran for, by row of the ledger, without lines that wait for native code.

    Of lines that only call libraries the library's own work may have to stay: half of their time counts.
    """
    lines = {line.detail: line for line in _python_lines(signals)}
    saving = {line.detail for line in beneath_saving(signals)}
    claims = [(row, lines.get(row.detail)) for row in rows(signals, PYTHON) if row.detail not in saving]
    return [
        replace(row, ms=row.ms if line is None or line.own >= OWN else CALLED * row.ms)
        for row, line in claims
        if line is None or not native(line)
    ]


def _shares(signals: Signals) -> list[Evidence]:
    """The longest lines, and their share of Python's time."""
    python = spent(signals, PYTHON)
    return [
        Evidence(
            f"share of Python's time in {where(line.function, line.source)}", 100 * line.ms / python, "%"
        )
        for line in sampled(signals)[:SHOWN]
    ]


def _at_line(candidate: Candidate, lines: list[HostLine]) -> Candidate:
    return replace(candidate, source=lines[0].source) if lines else candidate


def _on_processor(signals: Signals) -> Looked:
    """A profiler makes the pauses between ops longer, so it is their share that counts."""
    claims = _interpreted(signals)
    share = sum(claim.ms for claim in claims) / signals["step.timeline_ms"]
    if not any("::" in name for name in signals["host.ops"]):
        yield from _without_ops(signals)
        return
    if share < LEAST:
        yield from _in_functions(signals, [line for line in sampled(signals) if line.own >= OWN])
        return
    mean = signals.number("step.mean_ms", signals["step.timeline_ms"])
    yield Candidate(
        kind="host-python",
        claims=claims,
        evidence=[
            Evidence("share of the recorded step spent in Python between ops", 100 * _share(signals), "%"),
            Evidence("calls of ops", sum(signals["host.ops"].values()), "a step"),
            *_shares(signals),
        ],
        gain_ms=(1 - LEFT) * share * mean,
        doubt=0.4,
        confidence=0.7,
        check="fathom what-if SOUNDING 'python=0.1'",
        source=next((line.source for line in sampled(signals)), None),
    )


def _share(signals: Signals) -> float:
    return spent(signals, PYTHON) / float(signals["step.timeline_ms"])


def _without_ops(signals: Signals) -> Looked:
    """Python is all of the work: short instructions show a loop that whole arrays would replace."""
    lines = [(line, line.dwell_us or line.around_us) for line in _python_lines(signals)]
    if lines and all(dwell is None for _, dwell in lines):
        why = "how long Python stays at one instruction is not known: few samples, or a busy host"
        yield Unlooked("host-python", why)
    yield from _in_functions(signals, [line for line, dwell in lines if dwell and dwell <= BRIEF_US])


def _in_functions(signals: Signals, among: list[HostLine]) -> Found:
    """Functions of the program that compute for long, where other Python only asks for ops."""
    functions: dict[tuple[str, str], list[HostLine]] = {}
    for line in among:
        functions.setdefault((line.function, line.source.rpartition(":")[0]), []).append(line)
    for lines in functions.values():
        ms = sum(line.ms for line in lines)
        if ms >= LONG * signals["step.timeline_ms"]:
            yield _in_function(signals, lines, ms)


def _in_function(signals: Signals, lines: list[HostLine], ms: float) -> Candidate:
    known = [dwell for line in lines if (dwell := line.dwell_us or line.around_us)]
    pace = [Evidence("longest mean time at one instruction", max(known), "µs")] if known else []
    return Candidate(
        kind="host-python",
        claims=[Claim(line.entry, line.detail, line.ms) for line in lines],
        evidence=[Evidence(f"Python time in {lines[0].function}", ms, "ms a step"), *pace, *_shares(signals)],
        gain_ms=(1 - LEFT) * ms,
        doubt=0.3,
        confidence=0.75,
        check=f"the function {lines[0].function} at {lines[0].source}",
        source=lines[0].source,
    )
