"""Pack a sounding into one zip file, reproducible byte for byte, and unpack it."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from fathom.atomic import atomic_write
from fathom.errors import BadInputError, NotASoundingError, file_error, file_errors
from fathom.regular import open_regular
from fathom.units import GIB

SUFFIX = ".fathom.zip"
MOST_BYTES = 64 << 30
MOST_FILES = 100_000
MOST_DIRECTORY = 512 * MOST_FILES  # bytes of the list of files, which is read before it can be counted
_KEPT = {".json", ".parquet"}
_LONGEST_END = (1 << 16) + 100  # bytes at the end of an archive: a comment and its last records
_MOST_GROWTH = 1_032  # of deflate: 258 bytes from two bits at most (RFC 1951)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date that a zip can hold


def pack(folder: Path, output: Path | None = None) -> Path:
    """Write the finished sounding in `folder` to one file, `NAME.fathom.zip` beside it by default.

    Raises BadInputError if the file exists or cannot be written.
    """
    target = output or packed_name(folder)
    if target.exists():
        raise BadInputError(f"{target} already exists; choose another name with -o.")
    with file_errors(target, "written"), atomic_write(target) as part, zipfile.ZipFile(part, "w") as archive:
        for file in sorted(p for p in folder.rglob("*") if p.suffix in _KEPT and p.is_file()):
            _add(archive, file, file.relative_to(folder).as_posix())
    return target


def packed_name(sounding: Path) -> Path:
    """Return the default path of a packed sounding: `NAME.fathom.zip` beside it."""
    return sounding.with_name(sounding.name.removesuffix(SUFFIX).removesuffix(".fathom") + SUFFIX)


def _add(archive: zipfile.ZipFile, file: Path, name: str) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    entry.create_system = 3  # always Unix
    entry.compress_type = zipfile.ZIP_STORED if file.suffix == ".parquet" else zipfile.ZIP_DEFLATED
    entry.file_size = file.stat().st_size
    with file.open("rb") as source, archive.open(entry, "w") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)


def temporary_folder() -> Path:
    """Return a new folder, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="fathom-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def unpack(file: Path) -> Path:
    """Unpack a packed sounding into a temporary directory, which is removed when this process ends.

    Raises NotASoundingError for other files, and for archives that are damaged, too large, or would write
    outside the directory.
    """
    if not zipfile.is_zipfile(file):
        if file.suffix == ".zip":
            raise NotASoundingError(f"{file} is damaged or incomplete; copy or pack it again.")
        raise NotASoundingError(
            f"{file} is not a packed sounding; if it is a trace, import it with `fathom import {file}`."
        )
    if _directory_bytes(file) > MOST_DIRECTORY:
        raise NotASoundingError(f"{file} lists too many files; use the sounding's folder instead.")
    folder = temporary_folder()
    try:
        with zipfile.ZipFile(file) as archive:
            _check(file, archive.infolist(), shutil.disk_usage(folder).free)
            archive.extractall(folder)
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise NotASoundingError(f"{file} is damaged: {error}.") from None
    except OSError as error:
        raise NotASoundingError(file_error(file, error, "unpacked")) from None
    return folder


def _directory_bytes(file: Path) -> int:
    """Return the size of the archive's list of files, as its last record or the one of zip64 states it."""
    with open_regular(file) as source:
        source.seek(max(0, source.seek(0, os.SEEK_END) - _LONGEST_END))
        end = source.read()
    if (at := end.rfind(b"PK\6\6")) >= 0:
        return int.from_bytes(end[at + 40 : at + 48], "little")
    at = end.rfind(b"PK\5\6")
    return int.from_bytes(end[at + 12 : at + 16], "little")


def _check(file: Path, entries: list[zipfile.ZipInfo], free: int) -> None:
    size = sum(entry.file_size for entry in entries)
    if len(entries) > MOST_FILES or size > MOST_BYTES:
        raise NotASoundingError(
            f"{file} would unpack to {len(entries):,} files, {size / GIB:,.0f} GiB, which is too large; "
            "use the sounding's folder instead."
        )
    for entry in entries:
        known = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if known and entry.file_size > _MOST_GROWTH * entry.compress_size:
            raise NotASoundingError(f"{file} is damaged: its '{entry.filename}' is shorter than stated.")
    if size > free:
        raise NotASoundingError(
            f"{file} needs {size / GIB:,.1f} GiB to unpack, which {tempfile.gettempdir()} lacks."
        )
    if "manifest.json" not in (entry.filename for entry in entries):
        raise NotASoundingError(f"{file} is not a packed sounding: it has no manifest.json.")
    for entry in entries:
        path = PurePosixPath(entry.filename)
        regular = stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or not regular:
            raise NotASoundingError(f"{file} has the entry '{entry.filename}', which no sounding has.")
        if path.suffix not in _KEPT:
            raise NotASoundingError(f"{file} has '{entry.filename}', so it is not a packed sounding.")
