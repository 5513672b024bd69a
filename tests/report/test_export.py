"""Exports to other tools, read back: Perfetto's protobuf, tables, and OpenTelemetry's spans."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import polars as pl
import pytest

import fathom
from fathom.errors import BadInputError
from fathom.sounding import import_traces
from tests.support.nsys_exports import export_2024

BEGIN, END, COUNTER = 1, 2, 4


@pytest.fixture(scope="module")
def sounding(tmp_path_factory) -> fathom.Sounding:
    folder = tmp_path_factory.mktemp("export")
    import_traces([export_2024(folder / "n.sqlite", 12)], folder / "n.fathom")
    return fathom.open(folder / "n.fathom")


class Tracks:
    """A trace of Perfetto: names by track, parents, slices (path, name, start, end) and counters by path."""

    def __init__(self, path: Path) -> None:
        trace_pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
        trace = trace_pb2.Trace.FromString(path.read_bytes())
        self.names: dict[int, str] = {}
        self.parents: dict[int, int] = {}
        self.slices: Counter[tuple[str, str, int, int]] = Counter()
        self.counters: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        self.notes: dict[str, dict[str, str | int | float]] = {}
        opened: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        # As Perfetto does: packets are sorted by time, and equal times keep the order of the file.
        for packet in sorted(trace.packet, key=lambda packet: packet.timestamp):
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                assert track.uuid not in self.names
                self.names[track.uuid], self.parents[track.uuid] = track.name, track.parent_uuid
                continue
            event = packet.track_event
            if event.type == BEGIN:
                opened[event.track_uuid].append((event.name, packet.timestamp))
                values = {
                    n.name: n.string_value or n.int_value or n.double_value for n in event.debug_annotations
                }
                self.notes.setdefault(event.name, values)
            elif event.type == END:
                name, start = opened[event.track_uuid].pop()
                self.slices[self.path(event.track_uuid), name, start, packet.timestamp] += 1
            else:
                assert event.type == COUNTER
                self.counters[self.path(event.track_uuid)].append(
                    (packet.timestamp, event.double_counter_value)
                )
        assert not any(opened.values())

    def path(self, track: int) -> str:
        parent = self.parents[track]
        return (self.path(parent) + "/" if parent else "") + self.names[track]

    def rows(self, path: str) -> Counter[tuple[str, int, int]]:
        return Counter({row[1:]: count for row, count in self.slices.items() if row[0] == path})


@pytest.fixture(scope="module")
def tracks(sounding, tmp_path_factory) -> Tracks:
    path = tmp_path_factory.mktemp("perfetto") / "n.pftrace"
    assert sounding.export("perfetto", path) == str(path)
    return Tracks(path)


def test_every_interval_is_a_slice_on_its_track(sounding, tracks):
    kernels = sounding.table("kernels").filter(rank=1).select("name", "start_ns", "end_ns").collect()
    assert tracks.rows("rank 1 (process 200)/cuda:1/stream 7") == Counter(kernels.rows())
    ops = sounding.table("ops").filter(rank=1).select("name", "start_ns", "end_ns").collect()
    calls = sounding.table("launches").filter(rank=1).select("api", "start_ns", "end_ns").collect()
    assert tracks.rows("rank 1 (process 200)/thread 200") == Counter([*ops.rows(), *calls.rows()])
    steps = sounding.table("steps").filter(rank=1).collect()
    expected = [(f"step {row['step']}", row["mark_ns"], row["end_ns"]) for row in steps.iter_rows(named=True)]
    assert tracks.rows("rank 1 (process 200)/steps") == Counter(expected)


def test_the_ledger_is_a_counter_per_entry_that_sums_to_the_windows(sounding, tracks):
    own = {
        path: points
        for path, points in tracks.counters.items()
        if path.startswith("rank 0 (process 100)/cuda:3/ledger")
    }
    assert {"ledger: compute (ms per step)", "ledger: communication (ms per step)"} <= {
        p.split("/")[2] for p in own
    }
    windows = sounding.windows.filter(pl.col("rank") == 0)
    for start, end in windows.select("start_ns", "end_ns").iter_rows():
        spent = sum(value for points in own.values() for time, value in points if time == start)
        assert spent == pytest.approx((end - start) / 1e6)
    assert all(points[-1] == (windows["end_ns"][-1], 0.0) for points in own.values())


def test_samples_are_counters(sounding, tracks):
    points = tracks.counters["rank 0 (process 100)/cuda:3/SMs Active [Throughput %]"]
    assert [value for _, value in points] == [float(place) for place in range(20)]
    assert len(tracks.counters["rank 0 (process 100)/cuda:3/DRAM Read Bandwidth [Throughput %]"]) == 15


def test_findings_are_tracks_with_their_evidence(sounding, tracks):
    assert sounding.findings
    for finding in sounding.findings:
        notes = tracks.notes[finding.title]
        assert notes["kind"] == finding.id and notes["remedy"] == finding.remedy
        assert notes["gain_ms"] == pytest.approx(finding.gain_ms)
        assert f"findings/{finding.title}" in {row[0] for row in tracks.slices}


def test_crossing_slices_share_no_track(tmp_path):
    events = [
        {"ph": "X", "pid": 1, "tid": 1, "ts": ts, "dur": dur, "name": name}
        for ts, dur, name in ((0, 10, "a"), (5, 10, "b"), (20, 5, "c"), (20, 5, "d"), (22, 0, "e"))
    ]
    (tmp_path / "x.json").write_text(json.dumps(events))
    import_traces([tmp_path / "x.json"], tmp_path / "x.fathom")
    fathom.open(tmp_path / "x.fathom").export("perfetto", tmp_path / "x.pftrace")
    shown = Tracks(tmp_path / "x.pftrace")
    assert {row[1:] for row in shown.slices} >= {
        ("a", 0, 10_000),
        ("b", 5_000, 15_000),
        ("c", 20_000, 25_000),
        ("d", 20_000, 25_000),
        ("e", 22_000, 22_000),
    }


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_tables_come_back_as_they_are(sounding, tmp_path, kind):
    sounding.export(kind, tmp_path / "t")
    names = {path.stem for path in (tmp_path / "t").iterdir()}
    assert names == {"steps", "ops", "launches", "kernels", "samples", "ledger", "windows"}
    original = sounding.table("kernels").collect()
    if kind == "parquet":
        assert pl.read_parquet(tmp_path / "t" / "kernels.parquet").equals(original)
    else:
        read = pl.read_csv(tmp_path / "t" / "kernels.csv", schema=original.schema)
        assert read.equals(original)


def test_tables_of_two_recordings_do_not_mix(sounding, tmp_path):
    other = tmp_path / "t" / "input.csv"
    other.parent.mkdir()
    other.write_text("loader,batch\n")
    with pytest.raises(fathom.FathomError, match=r"input\.csv of another recording; give an empty folder"):
        sounding.export("csv", other.parent)
    assert list(other.parent.iterdir()) == [other]
    sounding.export("parquet", other.parent)  # other files may be there
    sounding.export("parquet", other.parent)  # and its own are overwritten


def spans_of(document: dict) -> list[dict]:
    (resource,) = document["resourceSpans"]
    return [span for scope in resource["scopeSpans"] for span in scope["spans"]]


def test_spans_of_steps_and_findings_in_a_file(sounding, tmp_path):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    sounding.export("otel", tmp_path / "spans.json")
    spans = spans_of(json.loads((tmp_path / "spans.json").read_text()))
    (root,) = [span for span in spans if "parentSpanId" not in span]
    assert root["name"] == "recording n" and len(bytes.fromhex(root["traceId"])) == 16
    assert {span["parentSpanId"] for span in spans if span is not root} == {root["spanId"]}
    steps = sounding.table("steps").select("mark_ns", "end_ns").collect()
    times = [(int(s["startTimeUnixNano"]), int(s["endTimeUnixNano"])) for s in spans if s["name"] == "step"]
    assert Counter(times) == Counter(steps.rows())
    assert {finding.title for finding in sounding.findings} <= {span["name"] for span in spans}


def test_spans_reach_a_collector_and_a_refusal_is_one_sentence(sounding, capfd):
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        sounding.export("otel", f"{address}/v1/traces")
        assert len(received) == 1 and b"recording n" in received[0]
        with pytest.raises(BadInputError, match=r"elsewhere did not accept the spans \(404\); check that"):
            sounding.export("otel", f"{address}/elsewhere")
    finally:
        server.shutdown()
        server.server_close()
    capfd.readouterr()
    with pytest.raises(BadInputError, match=r"v1/traces did not accept the spans \(.*refused\); check that"):
        sounding.export("otel", f"{address}/v1/traces")
    assert capfd.readouterr() == ("", "")


def test_an_unknown_format_and_a_bad_path_are_refused(sounding, tmp_path):
    with pytest.raises(BadInputError, match="no format 'json'"):
        sounding.export("json", tmp_path / "x")
    with pytest.raises(BadInputError, match="does not exist"):
        sounding.export("perfetto", tmp_path / "none" / "x.pftrace")
