"""Run a SQL query in a child process with limits on time and memory.

The child gets the query plans of the tables on standard input, and answers with the rows or an error.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping

import msgspec
import polars as pl

from fathom.units import GIB

SECONDS, MEMORY = 20, 3 * GIB // 2
TOO_SLOW = f"it takes more than {SECONDS} s; select fewer rows before joining them"
TOO_LARGE = f"it needs more than {MEMORY / GIB:.1f} GiB of memory, or is nested too deeply; simplify it"


class SqlError(Exception):
    """A query failed; `kind` is the name of polars' exception."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Request(msgspec.Struct):
    """A query and the plans of its tables."""

    query: str
    plans: dict[str, bytes]
    most_rows: int | None = None  # of the result
    most_bytes: int | None = None


class Answer(msgspec.Struct):
    """The rows in Arrow's format, or an error."""

    rows: bytes = b""
    kind: str = ""
    text: str = ""


def run(
    frames: Mapping[str, pl.LazyFrame],
    query: str,
    most_rows: int | None = None,
    most_bytes: int | None = None,
) -> pl.DataFrame:
    """Run `query` over `frames` in a child process. Raises SqlError, also if it exceeds a limit."""
    plans = {name: frame.serialize() for name, frame in frames.items()}
    command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command,
            input=msgspec.msgpack.encode(Request(query, plans, most_rows, most_bytes)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=SECONDS,
            env={**os.environ, "PYTHONPATH": path},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SqlError("Timeout", TOO_SLOW) from None
    if done.returncode != 0:
        raise SqlError("Memory", TOO_LARGE)
    answer = msgspec.msgpack.decode(done.stdout, type=Answer)
    if answer.kind:
        raise SqlError(answer.kind, answer.text)
    return pl.read_ipc_stream(io.BytesIO(answer.rows))


def main() -> None:
    """Answer the request on standard input."""
    from fathom.sounding.sql import run_here

    _limit()
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Request)
    frames = {name: pl.LazyFrame.deserialize(io.BytesIO(plan)) for name, plan in request.plans.items()}
    try:
        rows = io.BytesIO()
        run_here(frames, request.query, request.most_rows, request.most_bytes).write_ipc_stream(rows)
        answer = Answer(rows=rows.getvalue())
    except SqlError as error:
        answer = Answer(kind=error.kind, text=str(error))
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))


def _limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (4 * SECONDS, 4 * SECONDS))  # if the parent was killed
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # a query writes nothing
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
