"""Parts of a job in remote storage, at any URL that fsspec reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fathom.errors import BadInputError
from fathom.sounding.manifest_file import MANIFEST
from fathom.sounding.packing import SUFFIX, pack, temporary_folder


def is_url(text: str) -> bool:
    """Return whether `text` is a URL rather than a path."""
    return "://" in text


def upload(folder: Path, url: str) -> str:
    """Copy `folder` into the directory `url`, packed if finished; return its URL. Raises BadInputError."""
    system, root = _system(url)
    try:
        system.makedirs(root, exist_ok=True)
        if not (folder / MANIFEST).is_file():
            system.put(str(folder), f"{root}/{folder.name}", recursive=True)
            return f"{url.rstrip('/')}/{folder.name}"
        packed = folder.with_name(folder.name.removesuffix(".fathom") + SUFFIX)
        packed.unlink(missing_ok=True)
        try:
            system.put(str(pack(folder, packed)), f"{root}/{packed.name}")
        finally:
            packed.unlink(missing_ok=True)
        return f"{url.rstrip('/')}/{packed.name}"
    except Exception as error:  # each file system raises its own kinds
        raise BadInputError(f"{folder} could not be copied to {url}: {_why(error)}.") from None


def download(url: str) -> Path:
    """Copy the sounding or the directory at `url` into a temporary directory; return the path of the copy.

    The directory is removed when this process ends. Raises BadInputError if that fails.
    """
    system, root = _system(url)
    target = temporary_folder() / (root.rstrip("/").rpartition("/")[2] or "job")
    try:
        system.get(root, str(target), recursive=bool(system.isdir(root)))
    except Exception as error:
        raise BadInputError(f"{url} could not be read: {_why(error)}.") from None
    return target


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of `url`, and the path within it."""
    try:
        import fsspec
    except ImportError:
        raise BadInputError(f"{url} needs the package fsspec: pip install fsspec.") from None
    try:
        system, root = fsspec.core.url_to_fs(url)
    except Exception as error:
        raise BadInputError(f"{url} cannot be used: {_why(error)}.") from None
    return system, root.rstrip("/")


def _why(error: Exception) -> str:
    return (str(error) or type(error).__name__).rstrip(".")
