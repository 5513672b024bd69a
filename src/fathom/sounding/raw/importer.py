"""Import raw records into a sounding, and build its manifest."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import polars as pl

from fathom.probe.ending import EXCEPTION, UNCAUGHT
from fathom.redaction import redact_text
from fathom.sounding.events import integrity
from fathom.sounding.importer import note_missing_ranks
from fathom.sounding.manifest import COMPILER, LOADERS, Manifest, Phase, Problem, Rank
from fathom.sounding.raw import copies, placing, steps, tables, traces
from fathom.sounding.raw.deaths import deaths, without_steps
from fathom.sounding.raw.folder import Process, Raw, Record, read
from fathom.sounding.raw.samples import CounterSamples, samples
from fathom.sounding.raw.serving import serving
from fathom.sounding.raw.stacks import stacks
from fathom.sounding.schema import conform
from fathom.sounding.store import Store, Writer

MOST_OTHERS = 7  # processes to keep that lack a distinct rank, because pools may have hundreds
PACKAGES = ("torch", "cuda", "triton")  # of the Python environment
ENOUGH_PLACED = 0.8  # share of the timeline's launches that should get ops
# First words of notes about analyses that were skipped; all other notes are problems of the recording.
ABSTAINING = (
    *("memory", "timeline", "attribution", "counters", "settle"),
    *("own-profiler", "no-steps", "interrupted", "what-if"),
)
SERVER = "server"  # a note that the probe writes when a server starts
SETTLING = "they took longer than those after them: the program had not settled yet"
SLOWER_STEPS = (
    "steps became over 20 % faster after the timeline was recorded, and the program ended before it could be "
    "recorded again: the ledger is of the slower steps"
)


def import_raw(folder: Path, output: Path | None = None, *, replace: bool = False) -> Store:
    """Make a sounding from `folder/raw`, in `folder` or in `output`; `replace` allows overwriting `output`.

    Raises BadInputError if there are no raw records or the output cannot be written. If the program crashed,
    was killed, or never reached a step, the sounding is still valid and its manifest says so.
    """
    raw = read(Path(folder))
    writer = Writer(output or folder, replace=replace and output is not None)
    try:
        ranks = _ranks(raw)
        recorded = [_rank(raw, process, number, writer) for number, process in ranks.items()]
    except BaseException:
        writer.discard()
        raise
    about = manifest(raw, recorded, Path(output or folder))
    about.problems += deaths(
        ranks, stopped=about.ended in ("stopped", "interrupted") or _discarded(ranks, about)
    )
    if any(process.of("mark") for process in ranks.values()):
        note_missing_ranks(about, without_steps(raw.processes))
    return writer.finish(about, raw.launch.get("machine"))


def _discarded(ranks: dict[int, Process], about: Manifest) -> bool:
    """Return whether the program succeeded and then killed all ranks, as Ray ends its workers."""
    return about.exit_status == 0 and not any(process.of("end") for process in ranks.values())


def _ranks(raw: Raw) -> dict[int, Process]:
    """Return the processes that ran steps, by rank.

    If several have the same rank, that with the most marks keeps it, and others get the next free ranks.
    """
    marked = sorted(raw.processes, key=lambda process: -len(process.of("mark")))
    by_rank: dict[int, Process] = {}
    others: list[Process] = []
    for process in (candidate for candidate in marked if candidate.of("mark")):
        if by_rank.setdefault(process.rank, process) is not process:
            others.append(process)
    if not by_rank:
        by_rank[0] = next((p for p in raw.processes if p.head.get("role") != "worker"), Process(0))
    free = max(by_rank) + 1
    by_rank |= {free + place: process for place, process in enumerate(others[:MOST_OTHERS])}
    return dict(sorted(by_rank.items()))


def _rank(raw: Raw, process: Process, number: int, writer: Writer) -> RecordedRank:
    settled = steps.settled_at(raw.processes)
    settled = max(settled, steps.first(process))
    marked = steps.rehearsed(steps.relabelled(steps.marks(process), settled), process)
    placed_tables, shifts, problems = traces.read_traces(raw, process, marked, number, settled)
    if process.of("region"):
        own_regions = conform("ops", tables.regions(process, marked))
        placed_tables["ops"] = (
            pl.concat([placed_tables["ops"], own_regions]) if "ops" in placed_tables else own_regions
        )
    sampled = samples(raw, process, number, settled)
    stacked, rate = stacks(raw.path, process.pid, marked)
    own = {
        "samples": sampled.table,
        "steps": steps.steps(marked, steps.micro(process), steps.device_boundaries(process, marked)),
        "summaries": steps.summaries(process),
        "stacks": stacked,
        "waits": tables.waits(process, marked),
        "usage": tables.usage(process, marked),
        "input": tables.batches(process, raw.processes, marked),
        "memory": tables.memory(process, marked),
        "telemetry": tables.telemetry(raw),
        **serving(process, raw.processes),
    }
    if "memory" in placed_tables:
        recorded = (
            placed_tables.pop("memory"),
            traces.move(conform("memory", own["memory"]), shifts, "time_ns"),
        )
        own["memory"] = pl.concat(recorded).sort("time_ns")
    own["steps"] = _streams(traces.move(own["steps"], shifts, "mark_ns", "end_ns"))
    own["stacks"] = traces.move(own["stacks"], shifts, "time_ns")
    own["waits"] = traces.move(own["waits"], shifts, "start_ns", "end_ns")
    if "launches" in placed_tables:
        launches = traces.in_order(placed_tables["launches"])
        bare = [record["burst"] for record in process.of("trace") if record.get("way") == "cupti"]
        kernels = placed_tables["kernels"].filter(pl.col("burst").is_in(bare))  # Kineto measures calls
        beside = kernels, own["stacks"], conform("waits", own["waits"])
        placed_tables["launches"] = copies.waiting(launches, *beside)
    placed = placing.place(placed_tables, own["steps"])
    placed_tables = placed.tables
    problems = integrity.judged_overlaps(problems, placed_tables)
    own["steps"] = steps.classified(own["steps"], placed_tables.get("ops"))
    own["input"] = traces.move(own["input"], shifts, "start_ns")
    for name, frame in {**placed_tables, **own}.items():
        writer.write(number, name, frame)
    about = _about(process, number, shifts, sampled)
    about.facts.update(rate)
    about.facts.update(_timeline(process, placed))
    damaged = [problem for problem in problems if problem.what != traces.EMPTY]
    skipped = _not_placed(placed) + _empty(number, len(problems) - len(damaged))
    return RecordedRank(about, _phases(marked, number, own["summaries"]), damaged + sampled.problems, skipped)


def _timeline(process: Process, placed: placing.Placed) -> Record:
    """Return facts: the timeline's source, and the share of its launches matched to ops of other steps."""
    ways = [record.get("way") or "kineto" for record in process.of("trace") if record["phase"] == "timeline"]
    facts = {"timeline": max(sorted(set(ways)), key=ways.count)} if ways else {}
    return {**facts, **({"placed": round(placed.share, 4)} if placed.share is not None else {})}


def _not_placed(placed: placing.Placed) -> list[dict[str, str]]:
    share = placed.share
    if share is None or share >= ENOUGH_PLACED:
        return []
    why = (
        f"only {100 * share:.0f} % of the timeline's launches matched steps that were recorded with ops; "
        "the other launches have no op, module or source line"
    )
    return [{"what": "attribution", "why": why}]


def _empty(number: int, bursts: int) -> list[dict[str, str]]:
    """Return the reason why bursts have no operators."""
    if not bursts:
        return []
    count = f"{bursts} {'burst' if bursts == 1 else 'bursts'}"
    why = f"PyTorch's profiler recorded {count} of its process, without any"
    return [{"what": f"operators of rank {number}", "why": why}]


def _streams(frame: pl.DataFrame) -> pl.DataFrame:
    """Replace stream handles by the profiler's numbers: 7 for the default stream, null for all others."""
    default = pl.when(pl.col("stream") == 0).then(pl.lit(7, dtype=pl.Int64))
    return frame.with_columns(stream=default)


def _about(process: Process, number: int, shifts: list[traces.Shift], sampled: CounterSamples) -> Rank:
    head = process.head
    compiled, loaders = _plain(process.of("dynamo")), _plain(process.of("loader"))
    return Rank(
        rank=number,
        pid=process.pid or None,
        host=head.get("host"),
        world=head.get("world"),
        devices={int(index): name for index, name in (head.get("devices") or {}).items()},
        step_on=process.clock["source"] if process.clock else None,
        clock_error_ns=max((shift.error_ns for shift in shifts), default=None),
        facts={
            "python": head.get("python"),
            "program": _program(process),
            "bursts": len(process.of("trace")),
            **sampled.facts,
            **({COMPILER: compiled[-1]} if compiled else {}),  # counts only grow, so the last record suffices
            **({LOADERS: loaders} if loaders else {}),
        },
    )


def _plain(records: list[Record]) -> list[Record]:
    """Return the records without their kind (`t`)."""
    return [{name: value for name, value in record.items() if name != "t"} for record in records]


def _phases(marked: pl.DataFrame, number: int, summaries: pl.DataFrame) -> list[Phase]:
    """Return a Phase for each stretch of marks of one phase and burst; it ends where the next begins.

    Counted steps have only the first of their marks.
    """
    ends = marked.with_columns(end=pl.col("ns").shift(-1).fill_null(pl.col("ns")))
    known = ends.drop_nulls(["phase", "burst"])  # damaged records may lack them
    stretches = known.group_by("phase", "burst", maintain_order=True).agg(
        pl.col("ns").min(), pl.col("end").max(), pl.len()
    )
    windows = summaries.group_by("burst").agg(pl.col("end_ns").max(), pl.col("steps").sum())
    counted = {burst: (end, count) for burst, end, count in windows.iter_rows()}
    return [
        Phase(number, phase, burst, start, *(counted.get(burst) or (end, count)))
        if phase == steps.SUMMARY
        else Phase(number, phase, burst, start, end, count)
        for phase, burst, start, end, count in stretches.iter_rows()
    ]


@dataclass
class RecordedRank:
    """The manifest's entries for one rank."""

    rank: Rank
    phases: list[Phase]
    problems: list[Problem] = field(default_factory=list)
    abstained: list[dict[str, str]] = field(default_factory=list)


def manifest(raw: Raw, recorded: list[RecordedRank], path: Path) -> Manifest:
    """Return the manifest of the sounding made from `raw`; `path` is that of the sounding."""
    launch, end = raw.launch, raw.end
    marked = any(process.of("mark") for process in raw.processes)
    return Manifest(
        name=launch.get("name") or path.stem,
        made_by="run" if launch.get("command") else "record",
        created_ns=launch.get("start_ns") or time.time_ns(),
        command=[str(word) for word in launch.get("command") or []],
        origin=launch.get("origin"),
        exit_status=end.get("exit_status"),
        ended_ns=end.get("end_ns"),
        error=_error(raw),
        ended=_ended(end.get("ended"), raw.processes, marked),
        ranks=[entry.rank for entry in recorded],
        phases=[phase for entry in recorded for phase in entry.phases],
        versions=_versions(raw),
        environment={str(name): str(value) for name, value in (launch.get("environment") or {}).items()},
        settings=launch.get("settings") or {},
        problems=[problem for entry in recorded for problem in entry.problems]
        + _problems(raw)
        + _others(raw, recorded),
        abstained=[
            *(end.get("abstained") or []),
            *_abstained(raw, marked),
            *(why for entry in recorded for why in entry.abstained),
        ],
    )


def _ended(reported: str | None, processes: list[Process], marked: bool) -> str:
    """Return how the program ended, as its parent reported it.

    Without a report it is `finished` if all processes recorded their end, else `killed`. A nonzero exit
    status is `exception` if a process recorded one, because it may also be intended.
    """
    if reported is None:
        reported = "finished" if processes and all(process.of("end") for process in processes) else "killed"
    ends = [str(end.get("reason")) for process in processes for end in process.of("end")]
    if reported == "exited" and any(reason.startswith(EXCEPTION) for reason in ends):
        return "exception"
    return "no-steps" if reported == "finished" and not marked else reported


def _error(raw: Raw) -> str | None:
    """Return the first exception that ended a process, if the program ended badly."""
    notes = [note for process in raw.processes for note in process.of("note") if note.get("what") == UNCAUGHT]
    if not notes or raw.end.get("ended") != "exited":
        return None
    return redact_text(str(min(notes, key=lambda note: note.get("ns") or 0).get("text")))


def _versions(raw: Raw) -> dict[str, str]:
    versions: dict[str, str] = {}
    for process in raw.processes:
        versions.update(process.head.get("versions") or {})
        if process.head.get("python"):
            versions["python"] = process.head["python"]
    machine = (raw.launch.get("machine") or {}).get("versions") or {}
    known = {str(name): str(value) for name, value in machine.items() if value is not None}
    if "torch" not in versions:  # the machine's packages are those of Fathom's own environment
        known = {name: value for name, value in known.items() if name not in PACKAGES}
    return known | versions


def _problems(raw: Raw) -> list[Problem]:
    problems = [Problem("damaged-record", text) for text in raw.problems]
    torn = sum(process.torn for process in raw.processes)
    if torn:
        problems.append(
            Problem("torn-records", f"{torn} records of the probe are damaged and were left out.", torn)
        )
    if steps.is_of_slower_steps(raw.processes):
        problems.append(Problem("slower-steps", SLOWER_STEPS))
    for what, text in _notes(raw):
        if not _abstains(what):
            problems.append(Problem(what, text))
    return problems


def _abstained(raw: Raw, marked: bool) -> list[dict[str, str]]:
    entries = [{"what": what, "why": text} for what, text in _notes(raw) if _abstains(what)]
    if settled := steps.settled_at(raw.processes):
        count = settled - min(steps.first(process) for process in raw.processes if process.of("mark"))
        entries.append({"what": f"the first {count:,} steps", "why": SETTLING})
    if not marked:
        entries.append({"what": "steps", "why": _why_no_steps(raw)})
    return entries


def _abstains(what: str) -> bool:
    return what.partition(" ")[0] in ABSTAINING


def _others(raw: Raw, recorded: list[RecordedRank]) -> list[Problem]:
    """Return a problem that says how to see each process, if processes without distinct ranks ran steps.

    An engine's process and its workers' have different steps, so that nobody expects distinct ranks of them.
    """
    marked = [process for process in raw.processes if process.of("mark")]
    count, workers = len(marked), _engine_workers(raw.processes)
    if count <= len({(process.pid in workers, process.rank) for process in marked}):
        return []
    names = {process.pid: _program(process) for process in raw.processes}
    others = [entry.rank for entry in recorded]
    shown = [f"rank {r.rank} is {names.get(r.pid or 0) or 'a program'} (process {r.pid})" for r in others]
    lost = f"; {count - len(recorded)} more are left out" if count > len(recorded) else ""
    text = f"{count} processes ran steps without distinct ranks: {', '.join(shown)}{lost}."
    return [Problem("processes", f"{text} `fathom report --rank N` shows each.")]


def _engine_workers(processes: list[Process]) -> set[int]:
    """Return the processes that a serving engine's process started, by id."""
    parents = {process.pid: process.head.get("ppid") for process in processes}
    engines = {process.pid for process in processes if (process.clock or {}).get("source") == "engine"}
    below = set(engines)
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return below - engines


def _program(process: Process) -> str:
    return PurePath(str(process.head.get("program") or "")).name


def _why_no_steps(raw: Raw) -> str:
    """Return the reason for a recording without steps, with advice for servers, and with or without torch."""
    if raw.end.get("ended") in ("exited", "crashed"):
        return (
            "the program failed before its first step, or its steps were not recognised: see its own output, "
            "or call fathom.step() where a step ends"
        )
    if any(note.get("what") == SERVER for process in raw.processes for note in process.of("note")):
        return (
            "a server ran, but no two calls of a model were seen: send it requests while it is recorded "
            "(`fathom load` does, if it has OpenAI's API)"
        )
    if not any("torch" in (process.head.get("versions") or {}) for process in raw.processes):
        return "no step was recognised; call fathom.step() where one ends, with or without torch"
    return "nothing that marks a step happened twice; call fathom.step() where one ends"


def _notes(raw: Raw) -> list[tuple[str, str]]:
    seen: dict[tuple[str, str], Any] = {}
    for process in raw.processes:
        for note in process.of("note"):
            seen[(str(note.get("what")), str(note.get("text")))] = None
    return [(what, text) for what, text in seen if what not in (SERVER, UNCAUGHT)]
