"""The call behind each collective kernel: torch records operation, size, dtype and group beside it."""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np
import polars as pl

from fathom.analysis.work import NONE
from fathom.analysis.work.communication import ELEMENTS, FIELDS, GROUP, NAMES, RECORD
from fathom.analysis.work.dtypes import DTYPES, SIZE
from fathom.analysis.work.tree import Rows

REGIONS = r"^(?:nccl|gloo|mpi|ucc|xccl):(.+)$"  # annotation of the backend around the call
NEAR = 4  # levels from the launching op up to the record of its collective
_OPERATIONS = {
    "allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all", "send": "send_recv", "recv": "send_recv",
}  # fmt: skip
_EQUAL = ("all_reduce", "all_to_all", "broadcast", "reduce", "send_recv")  # all ranks' buffers have one size


class RecordedCall(NamedTuple):
    """A recorded call of a collective; unknown fields are null or empty."""

    operation: str
    bytes: int | None
    dtype: str | None
    ranks: int | None
    group: str
    members: str
    called: str = ""  # the backend's name, which keeps apart send and recv
    sent: int | None = None  # bytes of this rank
    received: int | None = None


UNKNOWN = RecordedCall("", None, None, None, "", "")


def operation(name: str) -> str:
    """Return the operation for a backend's name, for example `all_reduce` for allreduce."""
    plain = name.lower().lstrip("_").removesuffix("_coalesced")
    plain = NAMES.get(plain, NAMES.get(f"_{plain}", plain))
    plain = {"all_gather_base": "allgather", "reduce_scatter_base": "reducescatter"}.get(plain, plain)
    return _OPERATIONS.get(plain, plain)


def recorded_calls(ops: pl.DataFrame, parent: Rows, rows: Rows) -> list[RecordedCall]:
    """Return the recorded call at or around each op in `rows` (NONE if unknown), UNKNOWN if there is none."""
    if not ops.height:
        return [UNKNOWN] * len(rows)
    records = (ops["name"] == RECORD).fill_null(False).to_numpy()
    named = ops["name"].str.contains(REGIONS).fill_null(False).to_numpy()
    record, region = np.full(len(rows), NONE), np.full(len(rows), NONE)
    current = np.asarray(rows)
    for _ in range(NEAR):
        for rows_above, wanted in ((record, records), (region, named)):
            mine = (current >= 0) & wanted[current] & (rows_above == NONE)
            rows_above[mine] = current[mine]
        current = np.where(current >= 0, parent[current], NONE)
    calls = {pair: _call(ops, *pair) for pair in set(zip(record.tolist(), region.tolist(), strict=True))}
    return [calls[pair] for pair in zip(record.tolist(), region.tolist(), strict=True)]


def _call(ops: pl.DataFrame, record: int, region: int) -> RecordedCall:
    call = UNKNOWN if record == NONE else _of_record(ops["values"][record])
    return call if call.operation or region == NONE else _of_region(ops, region)


def _of_record(values: str | None) -> RecordedCall:
    """Return the call whose values torch recorded in `record_param_comms`."""
    fields = json.loads(values) if values else []
    if not isinstance(fields, list) or len(fields) < len(FIELDS):
        return UNKNOWN
    texts = dict(zip((*FIELDS, *GROUP), map(str, fields), strict=False))
    name, dtype = operation(texts["name"]), ELEMENTS.get(texts["dtype"])
    width = SIZE[dtype] if dtype else 0
    sent, received = (round((_number(texts[field]) or 0) * width) or None for field in ("sent", "received"))
    size = max(sent or 0, received or 0) or None
    described = texts.get("description", "")
    group = described if described not in ("", "undefined", "None") else texts.get("group", "")
    ranks, members = _number(texts["ranks"]), texts.get("members", "")
    return RecordedCall(name, size, dtype, ranks, group, members, texts["name"], sent, received)


def _of_region(ops: pl.DataFrame, row: int) -> RecordedCall:
    """Return the call named in the backend's annotation, the only record of gloo and older torch."""
    called = ops["name"][row].partition(":")[2]
    name = operation(called)
    shapes, types = (json.loads(ops[field][row] or "[]") for field in ("shapes", "dtypes"))
    dtype = DTYPES.get(types[0]) if types else None
    shape = shapes[0] if shapes else None
    if name not in _EQUAL or dtype is None or shape is None or not all(isinstance(n, int) for n in shape):
        return RecordedCall(name, None, dtype, None, "", "", called)
    return RecordedCall(name, round(np.prod(shape) * SIZE[dtype]), dtype, None, "", "", called)


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None
