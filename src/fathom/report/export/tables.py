"""The tables of a sounding as files that other programs read: Parquet as they are, or CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from fathom.errors import BadInputError, file_errors
from fathom.report.export.exported import written
from fathom.sounding import TABLES, Store

_LISTS = (pl.List, pl.Array)


def save_tables(store: Store, folder: Path, kind: str, results: dict[str, pl.DataFrame]) -> list[Path]:
    """Write every table with rows as `TABLE.parquet` or `TABLE.csv`, with the column `rank`, and `results`.

    In CSV, lists are joined by spaces. Raises BadInputError if a file cannot be written, or if the folder has
    tables of another recording that would stay beside these.
    """
    with file_errors(folder, "created"):
        folder.mkdir(parents=True, exist_ok=True)
    frames = {name: store.table(name) for name in TABLES if store.has(name)}
    frames |= {name: frame.lazy() for name, frame in results.items() if len(frame)}
    others = sorted({*TABLES, *results}.difference(frames))
    if stale := next((path for name in others if (path := folder / f"{name}.{kind}").exists()), None):
        raise BadInputError(f"{folder} has {stale.name} of another recording; give an empty folder.")
    files = []
    for name, frame in frames.items():
        files.append(folder / f"{name}.{kind}")
        with written(files[-1]) as part:
            _WRITERS[kind](frame.collect(), part)
    return files


def _parquet(frame: pl.DataFrame, path: Path) -> None:
    frame.write_parquet(path, compression="zstd")


def without_lists(frame: pl.DataFrame) -> pl.DataFrame:
    """Join lists by spaces, as CSV has none."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, _LISTS)]
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists)


def _csv(frame: pl.DataFrame, path: Path) -> None:
    without_lists(frame).write_csv(path)


_WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {"parquet": _parquet, "csv": _csv}
