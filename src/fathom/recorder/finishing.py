"""Turn raw records into a sounding, or compress them for transport."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import shutil
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fathom.atomic import atomic_write, create_private
from fathom.errors import FathomError
from fathom.redaction import redact_name, redact_text
from fathom.regular import read_json

if TYPE_CHECKING:
    from fathom.sounding import Store

TABLE_LIBRARIES = ("polars", "msgspec", "isal", "numpy")
LONG = 2.0  # seconds without output
PATIENCE = 2.0  # seconds, timeout of each command that a check runs


def missing_libraries() -> list[str]:
    """Return the table libraries that this Python lacks."""
    return [name for name in TABLE_LIBRARIES if importlib.util.find_spec(name) is None]


def finish(folder: Path, *, keep_raw: bool = False, say: Callable[[str], None]) -> Store | None:
    """Replace the raw records in `folder` by a sounding, and return it.

    Returns None if records stay raw: on request, without the libraries, or after a reported error.
    """
    missing = [] if keep_raw else missing_libraries()
    if missing:
        say(f"the records stay raw, because this Python lacks {', '.join(missing)}")
    try:
        if keep_raw or missing:
            redact_raw(folder / "raw")
            compress_traces(folder / "raw")
            say(f"the raw records are in {folder}; turn them into a sounding with `fathom import {folder}`")
            return None
        return _make(folder, say)
    except (Exception, KeyboardInterrupt) as error:  # must not change the program's exit status
        if os.environ.get("FATHOM_DEBUG"):
            traceback.print_exception(error)
        say(f"the sounding could not be written: {str(error) or type(error).__name__}")
        if (folder / "raw").is_dir():
            say(f"the raw records are kept in {folder}; try again with `fathom import {folder}`")
        return None


def _make(folder: Path, say: Callable[[str], None]) -> Store:
    from fathom.recorder.folding import fold
    from fathom.sounding import import_raw

    patience = threading.Timer(LONG, say, [f"writing the sounding {folder} …"])
    patience.daemon = True
    patience.start()
    try:
        note_checks(folder / "raw")
        store = fold(import_raw(folder), say)
    finally:
        patience.cancel()
    shutil.rmtree(folder / "raw", ignore_errors=True)
    return store


def note_checks(raw: Path) -> None:
    """Check the machine, and add the results to the inventory in `launch.json`, if that is possible.

    The checks run after the program has ended: then the counters of throttling and of killed processes cover
    its run, and reading them delays nothing. Records that stay raw get no checks, because the checks need
    libraries that such a machine lacks.
    """
    from fathom.machine.checks import examine, stored, this_host

    path = raw / "launch.json"
    try:
        launch = read_json(path)
        results = stored(examine(this_host(PATIENCE)))
        launch["machine"]["checks"] = {
            name: {key: redact_text(text) for key, text in result.items()} for name, result in results.items()
        }
        with atomic_write(path) as part:
            Path(part).write_text(json.dumps(launch, indent=1))
    except Exception:  # the recording matters more than the checks
        return


def redact_raw(raw: Path) -> None:
    """Remove secrets from raw records that are kept. Their lines are JSON, which stays valid."""
    for file in sorted(path for ending in ("json", "jsonl") for path in raw.glob(f"*.{ending}")):
        if _has_secrets(file):
            with file.open(errors="replace") as source, atomic_write(file) as part, open(part, "w") as sink:  # noqa: PTH123
                sink.writelines(map(redact_name, source))


def _has_secrets(file: Path) -> bool:
    with file.open(errors="replace") as source:
        return any(redact_name(line) != line for line in source)


def compress_traces(raw: Path) -> None:
    """Gzip the saved traces one by one; a trace that cannot be compressed stays as it is."""
    for trace in sorted(raw.glob("trace-*.json")):
        packed = trace.with_name(trace.name + ".gz")
        try:
            create_private(packed)
            with trace.open("rb") as source, gzip.open(packed, "wb", compresslevel=1) as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
        except OSError as error:
            packed.unlink(missing_ok=True)
            raise FathomError(
                f"{trace.name} could not be compressed and stays uncompressed: {error.strerror}."
            ) from None
        trace.unlink()
