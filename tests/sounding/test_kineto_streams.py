"""Events come out as written, to the nanosecond, however the file is laid out and read."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fathom.sounding.events.arrays import to_ns
from fathom.sounding.kineto import read_trace, stream
from fathom.sounding.kineto.stream import TraceStream, scan
from tests.support.kineto_samples import Event, kernel, op, write_text

# Text that tempts a cutter of JSON: seams, brackets, quotes and backslashes within strings.
tricky = st.lists(
    st.sampled_from(
        ["}, {", "},{", '"', "\\", "]", "[", "{", "}", "\n", '"traceEvents": [', "é", "😀", "x", " "]
    ),
    max_size=6,
).map("".join)
starts = st.integers(1, 2**52 * 1000 - 1)
durations = st.integers(0, 10**12)


@st.composite
def traces(draw) -> list[tuple[str, int, int]]:
    """Names, starts and durations of ops in nanoseconds; some near the epoch, some near today."""
    origin = draw(st.sampled_from([0, 1_365_627_862_757_064, 1_712_195_495_519_689_047]))
    spans = st.tuples(tricky.map(lambda text: "op " + text), st.integers(1, 10**13), durations)
    return [(name, origin + ns, dur) for name, ns, dur in draw(st.lists(spans, min_size=1, max_size=30))]


def micros(ns: int, decimals: bool) -> Decimal | int:
    """Nanoseconds as microseconds; without decimals only where it has none."""
    return ns // 1000 if not decimals and ns % 1000 == 0 else Decimal(ns) / 1000


def dumps(value: object, indent: int | None) -> str:
    """JSON in which a Decimal is a number."""
    numbers: list[str] = []

    def number(decimal: Decimal) -> str:
        numbers.append(format(decimal, "f"))
        return f"@{len(numbers) - 1}@"

    text = json.dumps(value, indent=indent, default=number, ensure_ascii=False)
    for place, digits in enumerate(numbers):
        text = text.replace(f'"@{place}@"', digits, 1)
    return text


@settings(max_examples=80)
@given(
    traces(), st.sampled_from([None, 0, 2]), st.booleans(), st.sampled_from([64, 333, 1 << 19]), st.booleans()
)
def test_what_was_written_comes_out(tmp_path_factory, spans, indent, decimals, block, bare):
    events = [
        op(name, micros(ts, decimals), micros(dur, decimals), note=[{"a": 1}, {"b": name}])
        for name, ts, dur in spans
    ]
    document = (
        events
        if bare
        else {"head": {"traceEvents": [1]}, "traceEvents": events, "tail": [{"a": 1}, {"b": 2}]}
    )
    path = write_text(tmp_path_factory.mktemp("t") / "t.json.gz", dumps(document, indent))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK", block)
        ops = read_trace(path).tables["ops"]
    assert sorted(ops.select("name", "start_ns", "end_ns").rows()) == sorted(
        (n, ts, ts + dur) for n, ts, dur in spans
    )


@given(st.lists(starts, min_size=1, max_size=20))
def test_times_as_text_are_exact(times):
    texts = [format(Decimal(ns) / 1000, "f").encode() for ns in times]
    from msgspec import Raw

    assert to_ns([Raw(text) for text in texts]).tolist() == times


@given(st.lists(st.integers(0, 2**43 * 1000 - 1), min_size=1, max_size=20))
def test_times_as_floats_are_exact_where_they_are_accepted(times):
    assert to_ns([ns / 1000 for ns in times]).tolist() == times


@given(
    st.lists(
        st.recursive(
            st.integers() | tricky | st.none(),
            lambda inner: st.lists(inner) | st.dictionaries(tricky, inner),
            max_leaves=8,
        ),
        max_size=5,
    )
)
def test_the_scanner_finds_what_the_decoder_finds(values):
    objects = [{"v": value} for value in values]
    text = json.dumps(objects).encode()[1:] + b', "tail": {"]": "}"}'
    result = scan(text)
    assert [json.loads(text[start:end]) for start, end in result.spans] == objects
    assert result.closed is not None and text[result.closed :].startswith(b"]")


def test_the_last_events_before_the_tail_are_not_lost(tmp_path: Path, monkeypatch):
    """Blocks of every size around that of an event, and seams behind the end of the list."""
    events: list[Event] = [kernel(f"k{n}", n, 1, n) for n in range(7)]
    tail = [{"name": "seam"}, {"name": "seam"}]
    path = write_text(tmp_path / "t.json", json.dumps({"traceEvents": events, "metadata": tail}))
    for block in range(1, 400, 7):
        monkeypatch.setattr(stream, "BLOCK", block)
        trace = TraceStream(path)
        assert [event.name for block in trace for event in block] == [f"k{n}" for n in range(7)]
        assert trace.meta == {"metadata": tail}


def test_an_event_longer_than_the_limit_is_refused(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(stream, "LONGEST", 1 << 20)
    path = write_text(tmp_path / "t.json", json.dumps([op("x" * (8 << 20), 1, 1)]))
    with pytest.raises(Exception, match="more than 1 MiB of it contain no complete event"):
        list(TraceStream(path))
