"""Damaged traces: each is refused in one sentence, or becomes a sounding that names what is wrong with it."""

from __future__ import annotations

import gzip
import json
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fathom.errors import BadInputError, FathomError
from fathom.recorder import import_any
from fathom.sounding import Store, import_traces
from tests.support.kineto_samples import Event, call, kernel, op, small, write, write_text

GOOD = json.dumps({"traceEvents": small()})


def edited(change: Callable[[str], str | bytes], name: str = "t.json") -> Callable[[Path], Path]:
    """A file whose text was changed."""
    return lambda folder: write_text(folder / name, change(GOOD))


def packed(change: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    """A gzipped file whose compressed bytes were changed."""

    def make(folder: Path) -> Path:
        path = write_text(folder / "t.json.gz", GOOD)
        path.write_bytes(change(path.read_bytes()))
        return path

    return make


def of(text: str | bytes, name: str = "t.json") -> Callable[[Path], Path]:
    """A file of this text."""
    return lambda folder: write_text(folder / name, text)


def folder_itself(folder: Path) -> Path:
    path = folder / "t.json"
    path.mkdir()
    return path


def forbidden(folder: Path) -> Path:
    path = write(folder / "t.json", small())
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    return path


def swapped_crc(data: bytes) -> bytes:
    return data[:-8] + bytes(255 - byte for byte in data[-8:-4]) + data[-4:]


def many_events(_: str) -> str:
    """Longer than a block, and cut off."""
    return json.dumps({"traceEvents": small() * 2000})[:-5]


REFUSED = {
    "missing": (lambda folder: folder / "t.json", "cannot be read"),
    "folder": (folder_itself, "cannot be read"),
    "forbidden": (forbidden, "cannot be read"),
    "empty": (of(""), "it is empty"),
    "only spaces": (of(" \n\t " * 1000), "it is empty"),
    "empty gzip": (of("", "t.json.gz"), "it is empty"),
    "gzip cut off": (packed(lambda data: data[: len(data) // 2]), "gzip stream is cut off"),
    "gzip header only": (packed(lambda data: data[:6]), "gzip stream is"),
    "gzip without trailer": (packed(lambda data: data[:-8]), "gzip stream is cut off"),
    "gzip wrong checksum": (packed(swapped_crc), "gzip stream is damaged"),
    "gzip with a flipped bit": (
        packed(lambda data: data[:40] + bytes([data[40] ^ 8]) + data[41:]),
        "cannot be imported",
    ),
    "json cut off in an event": (edited(lambda text: text[: len(text) // 2]), "is truncated"),
    "json cut off after an event": (edited(lambda text: text[: text.rindex("}]") + 1]), "is truncated"),
    "json cut off after the list": (edited(lambda text: text[:-1]), "is truncated"),
    "json cut off in the head": (of('{"schemaVersion": 1, "deviceProperties": [{"id"'), "is truncated"),
    "long json cut off": (edited(many_events), "is truncated"),
    "not json": (of("hello, this is no trace"), "neither a JSON object nor a list"),
    "a picture": (of(b"\x89PNG\r\n\x1a\n" + bytes(100)), "neither a JSON object nor a list"),
    "a database": (of(b"SQLite format 3\x00" + bytes(4096)), "its database is damaged"),
    "utf-16": (edited(lambda text: text.encode("utf-16")), "neither a JSON object nor a list"),
    "other json": (of('{"name": "config", "values": [1, 2, 3]}'), "no list of traceEvents"),
    "a list of numbers": (of("[1, 2, 3]"), "text between its events"),
    "a list of lists": (of('[[1], [{"ph": "X"}]]'), "other entries than events"),
    "a word": (of('"traceEvents"'), "neither a JSON object nor a list"),
    "traceEvents is an object": (of('{"traceEvents": {}}'), "no list of traceEvents"),
    "traceEvents within something": (of('{"a": {"traceEvents": [{"ph": "X"}]}}'), "no list of traceEvents"),
    "traceEvents in a text": (of('{"a": "\\"traceEvents\\": [", "b": 1}'), "no list of traceEvents"),
    "traceEvents twice": (edited(lambda text: text[:-1] + ', "traceEvents": []}'), "twice"),
    "no events": (of('{"traceEvents": []}'), "neither operators nor device work"),
    "only metadata": (
        of('{"traceEvents": [{"ph": "M", "name": "process_name"}]}'),
        "neither operators nor device",
    ),
    "only calls": (of(json.dumps([call("cudaLaunchKernel", 1, 2, 3)])), "neither operators nor device work"),
    "two documents": (edited(lambda text: text + text), "not valid JSON"),
    "text after the list": (edited(lambda text: text[text.index("[") : -1] + " x"), "something follows"),
    "a stray word": (edited(lambda text: text.replace("}, {", "}, oops {", 1)), "text between its events"),
    "a missing colon": (edited(lambda text: text.replace('"ph": ', '"ph" ', 1)), "not valid JSON"),
    "a missing comma": (edited(lambda text: text.replace('"X", ', '"X" ', 1)), "not valid JSON"),
    "single quotes": (edited(lambda text: text.replace('"', "'")), "cannot be imported"),
    "invalid utf-8": (edited(lambda text: text.encode().replace(b"gemm", b"ge\xff\xfem")), "not valid UTF-8"),
    "NUL bytes in a name": (edited(lambda text: text.replace("gemm", "ge\0m")), "not valid JSON"),
    "NUL bytes at the end": (edited(lambda text: text + "\0" * 512), "cannot be imported"),
    "nested deeply": (
        edited(lambda text: text.replace("[2, 3]", "[" * 100_000 + "]" * 100_000, 1)),
        "nested too deeply",
    ),
}


def refusal(paths: list[Path], folder: Path) -> str:
    """The sentence with which an import was refused; it left nothing behind."""
    output = folder / "t.fathom"
    with pytest.raises(FathomError) as caught:
        import_traces(paths, output)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and not text.startswith(("Traceback", "<")), text
    assert not output.exists()
    return text


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_whole_trace_is_refused(tmp_path, name):
    make, says = REFUSED[name]
    path = make(tmp_path)
    text = refusal([path], tmp_path)
    assert says in text and str(path) in text


def test_one_bad_trace_among_good_ones_refuses_all(tmp_path):
    good = write(tmp_path / "good.json", small())
    text = refusal([good, write_text(tmp_path / "bad.json", "[")], tmp_path)
    assert "bad.json" in text


def test_a_rank_that_is_given_twice_is_refused(tmp_path):
    traces = [write(tmp_path / f"{n}.json", small(), {"distributedInfo": {"rank": 0}}) for n in "ab"]
    assert "rank 0" in refusal(traces, tmp_path)


def test_a_trace_that_is_given_twice_is_refused(tmp_path):
    """It would become two ranks that run alike to the nanosecond."""
    trace = write(tmp_path / "a.json", small())
    with pytest.raises(BadInputError, match="given twice"):
        import_any([trace, tmp_path / "." / "a.json"], tmp_path / "out.fathom")
    assert not (tmp_path / "out.fathom").exists()


def test_no_trace_at_all_is_refused(tmp_path):
    assert "No trace" in refusal([], tmp_path)


# Damage to events. Each edits the second step's kernel or adds an event; what the manifest must then name,
# and how many kernels are left of two.


def to_kernel(**fields: Any) -> Callable[[list[Event]], None]:
    """Changes fields of the last kernel; None takes them away."""

    def edit(events: list[Event]) -> None:
        for key, value in fields.items():
            events[-1].pop(key)
            if value is not None:
                events[-1][key] = value

    return edit


def adding(*more: Event) -> Callable[[list[Event]], None]:
    return lambda events: events.extend(more)


NOTE = "user_annotation"
NAMED = {
    "no start": (to_kernel(ts=None), "bad-time", 1),
    "start is text": (to_kernel(ts="1040"), "bad-time", 1),
    "start is true": (to_kernel(ts=True), "bad-time", 1),
    "start is NaN": (to_kernel(ts=float("nan")), "bad-time", 1),
    "start is infinite": (to_kernel(ts=float("inf")), "bad-time", 1),
    "start overflows": (to_kernel(ts=2**63), "bad-time", 1),
    "start overflows far": (to_kernel(ts=10**400), "bad-time", 1),
    "start before the epoch": (to_kernel(ts=-3 * 10**15), "bad-time", 1),
    "no duration": (to_kernel(dur=None), "bad-duration", 1),
    "duration is null": (lambda events: events[-1].update(dur=None), "bad-duration", 1),
    "duration is a list": (to_kernel(dur=[1]), "bad-duration", 1),
    "duration is NaN": (to_kernel(dur=float("nan")), "bad-duration", 1),
    "negative duration": (to_kernel(dur=-1), "bad-duration", 1),
    "duration overflows": (to_kernel(dur=1e300), "bad-duration", 1),
    "duration that wrapped around": (to_kernel(dur=2**64 - 5), "bad-duration", 1),
    "no name": (to_kernel(name=None), "no-name", 1),
    "name is a number": (to_kernel(name=5), "no-name", 1),
    "name is empty": (to_kernel(name=""), "no-name", 1),
    "unknown phase": (adding({**kernel("k", 5000, 1, 9), "ph": "B"}), "unknown-phase", 2),
    "no phase": (adding({"name": "k", "cat": "kernel", "ts": 1}), "unknown-phase", 2),
    "unknown category": (adding({**kernel("k", 5000, 1, 9), "cat": "quantum"}), "unknown-category", 2),
    "no category": (adding({"ph": "X", "name": "k", "ts": 1, "dur": 1}), "unknown-category", 2),
    "overlap on a stream": (adding(kernel("k", 1100, 10, 100)), "stream-overlap", 3),
    "launch is missing": (adding(kernel("k", 5000, 10, 999)), "launch-missing", 3),
    "no correlation": (adding({**kernel("k", 5000, 10, 1), "args": {"stream": 7}}), "launch-missing", 3),
    "a graph without kernels": (adding(call("cudaGraphLaunch", 1900, 5, 500)), "graph-without-kernels", 2),
    "a hip graph without kernels": (adding(call("hipGraphLaunch", 1900, 5, 500)), "graph-without-kernels", 2),
    "before its launch": (adding(call("cudaFree", 6000, 5, 5), kernel("k", 5000, 9, 5)), "clock-skew", 3),
    "the clock was set back": (adding(op("ProfilerStep#2", 5, 9, cat=NOTE)), "clock-backwards", 2),
}  # fmt: skip


def imported(folder: Path, events: list[Event], **keys: Any) -> Store:
    return import_traces([write(folder / "t.json", events, keys)], folder / "t.fathom")


@pytest.mark.parametrize("name", NAMED)
def test_damage_is_named_and_kept_out(tmp_path, name):
    edit, what, left = NAMED[name]
    events = small()
    edit(events)
    store = imported(tmp_path, events)
    problems = {problem.what: problem for problem in store.manifest.problems}
    assert what in problems, problems
    assert problems[what].count == 1 and problems[what].rank == 0
    assert problems[what].text.endswith(".") and "\n" not in problems[what].text
    assert len(store.table("kernels").collect()) == left


def test_a_sound_trace_has_no_problems(tmp_path):
    assert imported(tmp_path, small()).manifest.problems == []


def test_overlap_within_the_resolution_is_none(tmp_path):
    events = [call("cudaLaunchKernel", 1, 2, n) for n in (1, 2)]
    events += [kernel("a", 10, 5, 1), kernel("b", 14, 5, 2)]  # whole microseconds: rounded
    assert imported(tmp_path, events).manifest.problems == []


def test_overlap_that_the_launch_allows_is_none(tmp_path):
    events = [call("cudaLaunchKernel", 1, 2, 1), call("cuLaunchKernelEx", 4, 2, 2)]
    events += [kernel("a", 10.5, 5, 1), kernel("b", 13.5, 5, 2)]
    assert imported(tmp_path, events).manifest.problems == []


def test_work_from_before_the_trace_is_no_damage(tmp_path):
    events = [kernel("early", 0, 5, 3), *small()]
    assert imported(tmp_path, events).manifest.problems == []


def test_the_profilers_own_word_that_it_lost_records(tmp_path):
    said = "INFO: Record counts: Out-of-range = 3, Unexpected CUDA events = 0, CUPTI stopped early? = "
    assert imported(tmp_path, small(), INFO=[said + "0"]).manifest.problems == []
    (tmp_path / "b").mkdir()
    problems = imported(tmp_path / "b", small(), INFO=[said + "1"]).manifest.problems
    assert [problem.what for problem in problems] == ["records-lost"]


def test_missing_ranks_are_told(tmp_path):
    store = imported(tmp_path, small(), distributedInfo={"rank": 2, "world_size": 8})
    assert [(p.what, p.count) for p in store.manifest.problems] == [("ranks-missing", 7)]


def test_numbers_that_c_prints_as_nan_do_not_cost_the_event(tmp_path):
    text = json.dumps({"traceEvents": small()}).replace('"grid"', '"est. achieved occupancy %": -nan, "grid"')
    store = import_traces([write_text(tmp_path / "t.json", text)], tmp_path / "t.fathom")
    assert store.manifest.problems == [] and len(store.table("kernels").collect()) == 2


def test_arguments_of_the_wrong_type_become_null(tmp_path):
    events = small()
    events[0]["args"]["Input Dims"] = {"not": "a list"}
    events[-2]["args"]["correlation"] = "--5"
    events[-1]["args"].update(stream="7", device=None, grid=None, bytes=[1], correlation=101.0)
    events[-1]["args"]["registers per thread"] = 2**70
    kernels = imported(tmp_path, events).table("kernels").collect()
    row = kernels.row(1, named=True)
    assert (row["stream"], row["device"], row["grid"], row["bytes"], row["registers"]) == (
        7,
        0,
        None,
        None,
        None,
    )
    events[-1]["args"] = "none"
    (tmp_path / "b").mkdir()
    assert imported(tmp_path / "b", events).table("kernels").collect()["correlation"].to_list() == [100, None]


@pytest.mark.parametrize(
    ("head", "fill"), [("", " "), ('{"a": "', "x"), ('{"traceEvents": [{"name": "', "x")]
)
def test_a_bomb_takes_no_memory(tmp_path, head, fill):
    """A file that unpacks to a thousand times its size is abandoned long before its end."""
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(head.encode()) + gzip.compress(fill.encode() * (1 << 20)) * 1000)
    tracemalloc.start()
    assert "64 MiB" in refusal([path], tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 400 << 20
    tracemalloc.stop()


def test_a_refused_trace_leaves_no_thread_that_decompresses(tmp_path):
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"a": "') + gzip.compress(b"x" * (1 << 20)) * 1000)
    before = threading.active_count()
    with pytest.raises(BadInputError) as refused:
        import_traces([path], tmp_path / "s")
    assert "64 MiB" in str(refused.value) and threading.active_count() == before


def test_half_a_pair_of_surrogates_in_a_name_is_told_as_a_question_mark(tmp_path):
    text = GOOD.replace('"name": "', '"name": "\\ud800', 1)
    assert text != GOOD
    store = import_traces([write_text(tmp_path / "t.json", text)], tmp_path / "s")
    tables = [store.table(name).collect()["name"] for name in ("ops", "kernels")]
    assert any(name.startswith("?") for table in tables for name in table)
