"""Soundings on disk: written once, never changed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import zlib
from copy import copy
from functools import cached_property
from pathlib import Path

import msgspec
import polars as pl

from fathom.atomic import atomic_write, create_private, write_private
from fathom.errors import BadInputError, NotASoundingError, file_error
from fathom.machine import require_machine
from fathom.machine.model import Machine
from fathom.redaction import HINT, own_patterns, redact_all, redact_name
from fathom.regular import open_regular, read_json
from fathom.replacing import Aside
from fathom.sounding.checking import collected, flaw, require_valid, scanned
from fathom.sounding.manifest import Manifest, Rank
from fathom.sounding.manifest_file import MANIFEST, read_manifest
from fathom.sounding.missing import without_removed_ranks
from fathom.sounding.packing import unpack
from fathom.sounding.schema import TABLES, conform, empty

MACHINE = "machine.json"
_CHUNK = 1 << 20
MOST_CACHED = 16  # ranks whose tables are kept in memory together
FEW_CACHED = 2  # if the job has more ranks


class Store:
    """A finished sounding on disk. Tables are read lazily; a table that was never written is empty."""

    def __init__(self, path: Path, manifest: Manifest, source: Path | None = None) -> None:
        self.path = path
        self.source = source or path  # the packed file, if `path` is only its temporary copy
        self.manifest = manifest
        self._checked: set[str] = set()  # files whose checksums were compared
        self._valid: set[tuple[str, int]] = set()  # tables whose columns and values were checked

    def verify(self) -> Store:
        """Compare every table with its checksum. Raises NotASoundingError if one is damaged or missing."""
        for file, expected in self.manifest.checksums.items():
            require(self.path / file, expected)
            self._checked.add(file)
        return self

    @property
    def ranks(self) -> list[int]:
        """Ranks that were recorded, ascending."""
        return sorted(rank.rank for rank in self.manifest.ranks)

    @cached_property
    def machine(self) -> Machine:
        """The machine's inventory at the time of recording; for an imported trace, only its GPUs.

        Empty if there is none. Raises NotASoundingError if the file is damaged.
        """
        path = self.path / MACHINE
        try:
            machine = read_json(path) if os.path.lexists(path) else {}
        except (OSError, ValueError):
            raise NotASoundingError(
                f"{path} is damaged or cannot be read; record or import it again."
            ) from None
        return require_machine(machine, str(path))

    def table(self, name: str, rank: int | None = None) -> pl.LazyFrame:
        """Return one table of `rank`, or of all ranks, with `rank` as its last column.

        Raises BadInputError for an unknown table, and NotASoundingError if its file is damaged or missing.
        """
        if name not in TABLES:
            raise BadInputError(f"There is no table '{name}'; the tables are {', '.join(TABLES)}.")
        if rank is not None:
            return self._read(name, rank)
        return pl.concat([self._read(name, r) for r in self.ranks] or [_ranked(empty(name).lazy(), 0)])

    def cached(self) -> Store:
        """Return a view of this store that reads each table once and keeps it in memory."""
        return _Cached(self)

    def has(self, name: str) -> bool:
        """Return whether any rank recorded rows of the table `name`."""
        return any((self.path / f"rank-{rank}" / f"{name}.parquet").exists() for rank in self.ranks)

    def _read(self, name: str, rank: int) -> pl.LazyFrame:
        frame = self._scanned(name, rank)
        if frame is None:
            return _ranked(empty(name).lazy(), rank)
        self._require_valid(frame, name, rank)
        return _ranked(_grown(frame, name), rank)

    def _scanned(self, name: str, rank: int) -> pl.LazyFrame | None:
        """Return a table whose values are not checked yet, as it was written; None if there is none."""
        file = f"rank-{rank}/{name}.parquet"
        path = self.path / file
        if file in self.manifest.checksums and file not in self._checked:
            require(path, self.manifest.checksums[file])
            self._checked.add(file)
        return scanned(path) if os.path.lexists(path) else None  # a broken link is an error

    def _require_valid(self, frame: pl.LazyFrame | pl.DataFrame, name: str, rank: int) -> None:
        if (name, rank) not in self._valid:
            require_valid(frame, name, self.path / f"rank-{rank}/{name}.parquet")
            self._valid.add((name, rank))


class _Cached(Store):
    """A store that keeps tables in memory after reading them, except `samples`, which are large.

    Of a job of more than MOST_CACHED ranks, it keeps those of the FEW_CACHED ranks that were read last.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store.path, store.manifest)
        self._of = store
        self._checked, self._valid = store._checked, store._valid
        self._tables: dict[int, dict[str, pl.DataFrame]] = {}
        count = len(store.manifest.ranks)
        self._most = count if count <= MOST_CACHED else FEW_CACHED

    def cached(self) -> Store:
        return self

    @cached_property
    def machine(self) -> Machine:
        return self._of.machine

    def _read(self, name: str, rank: int) -> pl.LazyFrame:
        if name == "samples":
            return super()._read(name, rank)
        tables = self._tables[rank] = self._tables.pop(rank, {})  # the last rank is the latest
        if len(self._tables) > max(self._most, 1):
            del self._tables[next(iter(self._tables))]
        if name not in tables:
            tables[name] = self._collected(name, rank)
        return tables[name].lazy()

    def _collected(self, name: str, rank: int) -> pl.DataFrame:
        frame = self._scanned(name, rank)
        if frame is None:
            return _ranked(empty(name).lazy(), rank).collect()
        read = collected(frame, self.path / f"rank-{rank}/{name}.parquet")
        self._require_valid(read, name, rank)
        return _ranked(_grown(read.lazy(), name), rank).collect()


def _grown(frame: pl.LazyFrame, name: str) -> pl.LazyFrame:
    """Add columns that the schema has gained since the table was written, filled with null."""
    there = frame.collect_schema().names()
    return frame.with_columns(
        pl.lit(None, kind).alias(new) for new, kind in TABLES[name].items() if new not in there
    )


def _ranked(frame: pl.LazyFrame, rank: int) -> pl.LazyFrame:
    return frame.with_columns(rank=pl.lit(rank, dtype=pl.Int32))


def open_store(path: str | Path) -> Store:
    """Open the sounding in the directory `path`, or in the file that `fathom pack` made of it.

    Raises NotASoundingError if there is no sounding, if it was never finished, or if its format is newer.
    """
    folder = Path(path)
    if os.path.isfile(folder):  # noqa: PTH113 - Path.is_file raises where it may not look
        folder = unpack(folder)
    return Store(folder, without_removed_ranks(read_manifest(folder), folder), Path(path))


class Writer:
    """Write a new sounding: the tables first, the manifest last, so that an incomplete one has no manifest.

    Raises BadInputError if `path` is a sounding and `replace` is false, or if it cannot be created.
    """

    def __init__(self, path: str | Path, *, replace: bool = False) -> None:
        self.path = Path(path)
        self._written: list[Path] = []
        self._aside: Aside | None = None
        if (self.path / MANIFEST).exists() and not replace:
            raise BadInputError(f"{self.path} already exists; choose another name with -o.")
        try:
            if replace and self.path.exists():
                self._aside = Aside(self.path)
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            if self._aside:
                self._aside.restore()
            raise BadInputError(file_error(self.path, error, "created")) from None

    def write(self, rank: int, table: str, frame: pl.DataFrame) -> None:
        """Write one rank's table; an empty table is not written.

        Raises BadInputError if writing fails, or if the table has values that readers would refuse.
        """
        if frame.is_empty():
            return
        folder = self.path / f"rank-{rank}"
        file = folder / f"{table}.parquet"
        try:
            frame = _valid(frame, table, file)
            folder.mkdir(exist_ok=True, mode=0o700)
            self._written.append(file)
            create_private(file)
            _write_table(file, frame)
        except OSError as error:
            raise BadInputError(f"{folder} cannot be written: {error}.") from None

    def adopt(self, store: Store, rank: int) -> None:
        """Copy all tables of one rank of another sounding. Raises BadInputError if that fails."""
        folder = self.path / f"rank-{rank}"
        try:
            folder.mkdir(exist_ok=True, mode=0o700)
            for file in sorted((store.path / folder.name).glob("*.parquet")):
                create_private(folder / file.name)
                self._written.append(Path(shutil.copyfile(file, folder / file.name)))
        except OSError as error:
            raise BadInputError(file_error(folder, error, "written")) from None

    def discard(self) -> None:
        """Remove everything written so far, and restore a sounding that was to be replaced."""
        for table in self._written:
            table.unlink(missing_ok=True)
        for folder in (*{table.parent for table in self._written}, self.path):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if self._aside:
            self._aside.restore()

    def finish(self, manifest: Manifest, machine: Machine | None = None) -> Store:
        """Write the machine's inventory and the manifest, and return the finished sounding.

        Raises BadInputError if writing fails; then everything written so far is removed.
        """
        try:
            if machine:
                write_private(self.path / MACHINE, json.dumps(redact_all(machine), indent=1))
            manifest = _without_secrets(manifest)
            manifest.checksums = {f.relative_to(self.path).as_posix(): checksum(f) for f in self._written}
            _write_manifest(self.path, manifest)
        except OSError as error:
            self.discard()
            raise BadInputError(f"{self.path} cannot be written: {error}.") from None
        if self._aside:
            self._aside.drop()
        return Store(self.path, manifest)


def amend(store: Store, tables: dict[tuple[int, str], pl.DataFrame], ranks: list[Rank]) -> Store:
    """Replace tables (keyed by rank and name) and the manifest's ranks in a sounding that was just made.

    For the code that made the sounding only, before it is read. Raises BadInputError if writing fails.
    """
    manifest = copy(store.manifest)
    manifest.ranks, manifest.checksums = ranks, dict(store.manifest.checksums)
    try:
        for (rank, table), frame in tables.items():
            file = store.path / f"rank-{rank}" / f"{table}.parquet"
            with atomic_write(file) as part:
                _write_table(Path(part), _valid(frame, table, file))
            manifest.checksums[file.relative_to(store.path).as_posix()] = checksum(file)
        _write_manifest(store.path, manifest)
    except OSError as error:
        raise BadInputError(file_error(store.path, error, "written")) from None
    return Store(store.path, manifest)


def _valid(frame: pl.DataFrame, table: str, file: Path) -> pl.DataFrame:
    """Return the frame with the table's columns. Raises BadInputError if readers would refuse its values."""
    try:
        frame = conform(table, frame)
        why = flaw(frame.lazy(), table, file)
    except pl.exceptions.InvalidOperationError:  # a number outside the range of its column's type
        why = "a number is too large"
    if why:
        raise BadInputError(f"The table {table} cannot be written: {why}; the input is damaged.")
    return frame


def _write_table(file: Path, frame: pl.DataFrame) -> None:
    _redacted(frame).write_parquet(file, compression="zstd", compression_level=1, statistics=False)


def _without_secrets(manifest: Manifest) -> Manifest:
    """Return a copy whose texts contain no secrets; the command was redacted when it was recorded."""
    types = {field.name: field.type for field in msgspec.structs.fields(Manifest)}
    changes = {}
    for name in ("problems", "abstained", "versions", "environment", "ranks"):
        texts = redact_all(msgspec.to_builtins(getattr(manifest, name)))
        changes[name] = msgspec.convert(texts, types[name])
    return msgspec.structs.replace(manifest, **changes)


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    with atomic_write(folder / MANIFEST) as part:
        Path(part).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def checksum(file: Path) -> int:
    """Return the file's CRC-32. Raises OSError."""
    value = 0
    with open_regular(file) as source:
        while chunk := source.read(_CHUNK):
            value = zlib.crc32(chunk, value)
    return value


def require(file: Path, expected: int) -> None:
    """Raise NotASoundingError if the file is missing or unreadable, or if its CRC-32 is not `expected`."""
    try:
        actual = checksum(file)
    except FileNotFoundError:
        raise NotASoundingError(f"{file} is missing from the sounding; record or import it again.") from None
    except OSError as error:
        raise NotASoundingError(file_error(file, error)) from None
    if actual != expected:
        raise NotASoundingError(f"{file} was damaged after it was written; record or import it again.")


def _redacted(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the table without secrets. Only the few texts that may contain one are looked at in Python."""
    for name, kind in frame.schema.items():
        if kind == pl.String and (changed := _changed(frame[name])):
            frame = frame.with_columns(pl.col(name).replace(changed))
    return frame


def _changed(column: pl.Series) -> dict[str, str]:
    known = column.unique().drop_nulls()
    texts = known if own_patterns() else known.filter(known.str.contains(HINT))
    return {text: new for text in texts if (new := redact_name(text)) != text}
