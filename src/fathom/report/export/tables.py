"""The tables of a sounding as files that other programs read: Parquet as they are, or CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl

from fathom.errors import file_errors
from fathom.report.export.exported import written
from fathom.sounding import TABLES, Store

_LISTS = (pl.List, pl.Array)


def save_tables(store: Store, folder: Path, kind: str, results: dict[str, pl.DataFrame]) -> list[Path]:
    """Write every table with rows as `TABLE.parquet` or `TABLE.csv`, with the column `rank`, and `results`.

    In CSV, lists are joined by spaces. Raises BadInputError if a file cannot be written.
    """
    with file_errors(folder, "created"):
        folder.mkdir(parents=True, exist_ok=True)
    frames = {name: store.table(name) for name in TABLES if store.has(name)}
    frames |= {name: frame.lazy() for name, frame in results.items() if len(frame)}
    files = []
    for name, frame in frames.items():
        files.append(folder / f"{name}.{kind}")
        with written(files[-1]) as part:
            _WRITERS[kind](frame.collect(), part)
    return files


def _parquet(frame: pl.DataFrame, path: Path) -> None:
    frame.write_parquet(path, compression="zstd")


def _csv(frame: pl.DataFrame, path: Path) -> None:
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, _LISTS)]
    frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists).write_csv(path)


_WRITERS: dict[str, Callable[[pl.DataFrame, Path], None]] = {"parquet": _parquet, "csv": _csv}
