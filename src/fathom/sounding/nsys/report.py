"""Reports of Nsight Systems (.nsys-rep), which only its own command can export."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fathom.errors import BadInputError, file_errors
from fathom.regular import require_regular

ENDINGS = (".nsys-rep", ".qdrep")
_SECONDS = 3600  # large reports take minutes


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """Give the SQLite export of a report, made in a temporary folder; other files are given as they are.

    Raises BadInputError if `nsys` is missing or fails.
    """
    if path.suffix not in ENDINGS:
        yield path
        return
    with file_errors(path):
        require_regular(path)
    nsys = shutil.which("nsys")
    if nsys is None:
        raise BadInputError(
            f"{path} can only be read by nsys, which is not on the PATH; "
            "install it, or run `nsys export --type sqlite FILE` where it is, and import the result."
        )
    with tempfile.TemporaryDirectory(prefix="fathom-nsys-") as folder:
        yield _export(nsys, path, Path(folder) / "export.sqlite")


def _export(nsys: str, path: Path, output: Path) -> Path:
    words = [nsys, "export", "--type", "sqlite", "--output", str(output), str(path.absolute())]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInputError(f"{path} cannot be exported: nsys failed ({error}).") from None
    if done.returncode or not output.is_file():
        said = (done.stderr or done.stdout).strip().splitlines()
        raise BadInputError(
            f"{path} cannot be exported: nsys says {said[-1][:200] if said else 'nothing'!r}."
        )
    return output
