"""Steps and findings as spans of OpenTelemetry: a file of OTLP in JSON, or a collector's address."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from fathom.analysis.results import step_noun
from fathom.errors import BadInputError
from fathom.report.export.exported import Exported, written
from fathom.version import VERSION

EXTRA = "Export to OpenTelemetry needs its SDK: pip install 'fathom-perf[otel]'."
_BATCH = 512  # spans per request
_REASON = re.compile(r"\[Errno -?\d+\] ([^\"')]+)|(?:code: |status )(\d{3})")  # in messages of the SDK
_IDS = ("traceId", "spanId", "parentSpanId")


def save_spans(content: Exported, target: str) -> int:
    """Send the spans to a collector (http:// or https://), or write them to a file; return their number.

    Raises BadInputError without OpenTelemetry's packages, or if the file or the collector fails.
    """
    try:
        spans = _spans(content)
        if target.startswith(("http://", "https://")):
            _send(spans, target)
        else:
            _write(spans, Path(target))
    except ImportError:
        raise BadInputError(EXTRA) from None
    return len(spans)


def _spans(content: Exported) -> list[Any]:
    """Return one span for the recording, with one per step and finding in it."""
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    name = content.store.manifest.name or "fathom"
    provider = TracerProvider(resource=Resource({"service.name": name}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("fathom", VERSION)
    start, end = content.span
    root = tracer.start_span(f"recording {name}", start_time=start)
    inside = trace.set_span_in_context(root)
    for label, begun, ended, facts in [*_steps(content), *_findings(content)]:
        known = {key: value for key, value in facts.items() if value is not None}
        tracer.start_span(label, inside, attributes=known, start_time=begun).end(end_time=ended)
    root.end(end_time=end)
    return list(kept.get_finished_spans())


def _steps(content: Exported) -> list[tuple[str, int, int, dict[str, object]]]:
    rows = content.store.table("steps").filter(pl.col("parent").is_null(), pl.col("end_ns").is_not_null())
    facts = ("rank", "step", "source", "phase", "samples", "tokens")
    return [
        (step_noun(row["kind"]), row["mark_ns"], row["end_ns"], {f"fathom.{key}": row[key] for key in facts})
        for row in rows.collect().iter_rows(named=True)
    ]


def _findings(content: Exported) -> list[tuple[str, int, int, dict[str, object]]]:
    start, end = content.span
    return [
        (
            finding.title, start, end,
            {"fathom.finding": finding.id, "fathom.gain_ms": finding.gain_ms, "fathom.low_ms": finding.low_ms,
             "fathom.high_ms": finding.high_ms, "fathom.share": finding.share,
             "fathom.evidence": [f"{e.text}: {e.value:g} {e.unit}" for e in finding.evidence],
             "fathom.remedy": finding.remedy},
        )
        for finding in content.examination.findings
    ]  # fmt: skip


def _write(spans: list[Any], path: Path) -> None:
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    document = _with_hex_ids(MessageToDict(encode_spans(spans), use_integers_for_enums=True))
    with written(path) as part:
        part.write_text(json.dumps(document), encoding="utf-8")


def _with_hex_ids(value: Any) -> Any:
    """Return the document with ids in hexadecimal, as OTLP writes them, and not in base64 like protobuf."""
    if isinstance(value, list):
        return [_with_hex_ids(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64decode(entry).hex() if key in _IDS else _with_hex_ids(entry)
        for key, entry in value.items()
    }


def _send(spans: list[Any], address: str) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    exporter = OTLPSpanExporter(endpoint=address, timeout=10)
    with _quiet() as messages:
        for first in range(0, len(spans), _BATCH):
            if exporter.export(spans[first : first + _BATCH]) is not SpanExportResult.SUCCESS:
                raise BadInputError(
                    f"{address} did not accept the spans{_reason(messages)}; check that a collector runs "
                    "there, and its path, for example http://localhost:4318/v1/traces."
                )


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """Yield the list of the messages that the SDK logs, which it would print otherwise."""
    logger, kept = logging.getLogger("opentelemetry"), _Kept()
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(kept)
    try:
        yield kept.messages
    finally:
        logger.removeHandler(kept)
        logger.propagate = propagated


class _Kept(logging.Handler):
    """Keeps messages, and prints nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _reason(messages: list[str]) -> str:
    """Return the last reason in the SDK's messages: ` (Connection refused)`; "" if they have none."""
    reasons = [match[1] or match[2] for match in map(_REASON.search, messages) if match]
    return f" ({reasons[-1].strip()})" if reasons else ""
