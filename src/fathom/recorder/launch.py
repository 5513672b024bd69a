"""Create the folder of a recording, and start the program with the probe on its path."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fathom.atomic import write_private
from fathom.errors import BadInputError, file_error, file_errors
from fathom.machine.model import Machine
from fathom.probe.inherited import RAW, TEARDOWN
from fathom.recorder.command import CannotLaunchError
from fathom.recorder.origin import signature
from fathom.recorder.redact import allowed_environment, redact_command
from fathom.replacing import Aside, require_replaceable

ADDED = "FATHOM_ADDED"  # names of other variables that the program must not see
PACKAGE = Path(__file__).parent.parent
INJECT = PACKAGE / "probe" / "inject"
# Python ignores these at its own startup; the program must not inherit them.
_PYTHON_IGNORES = [s for s in (getattr(signal, n, None) for n in ("SIGPIPE", "SIGXFSZ")) if s is not None]


def child_environment(environment: Mapping[str, str], raw: Path, traced: bool = False) -> dict[str, str]:
    """Return the user's environment plus the output folder, with the probe's hook first on PYTHONPATH.

    `traced`: bursts will be recorded. Then Kineto must release CUPTI after each of its bursts, as later
    versions do by default; otherwise every launch stays slower, and CUPTI keeps Kineto's clock.
    """
    before = f"{environment.get('PYTHONPATH', '')}{os.pathsep}".removeprefix(f"{INJECT}{os.pathsep}")[:-1]
    adds = traced and TEARDOWN not in environment
    return {
        **environment,
        **({TEARDOWN: "1", ADDED: TEARDOWN} if adds else {}),
        RAW: str(raw.absolute()),
        "PYTHONPATH": os.pathsep.join([str(INJECT), *([before] if before else [])]),
    }


def write_launch(
    raw: Path, command: list[str], environment: Mapping[str, str], machine: Machine, **more: Any
) -> None:
    """Write `launch.json`: signed command, environment, start time, inventory; all without secrets."""
    kept = redact_command(command)
    record = {
        "command": kept,
        "origin": signature(kept) if kept else None,
        "start_ns": time.time_ns(),
        "environment": allowed_environment(environment),
        "machine": machine,
        **more,
    }
    write_private(raw / "launch.json", json.dumps(record, indent=1))


def spawn(path: str, command: list[str], environment: Mapping[str, str], mask: Iterable[int]) -> int:
    """Start the program at `path` in this terminal and process group; return its process id.

    `command` is its argument vector, `mask` its signal mask. Raises CannotLaunchError.
    """
    flush_output()
    try:
        return _spawn(path, command, environment, mask)
    except OSError as error:
        if error.errno == errno.ENOEXEC:  # a script without #!, which shells run with sh
            return _spawn("/bin/sh", ["sh", path, *command[1:]], environment, mask)
        status = 127 if error.errno == errno.ENOENT else 126
        raise CannotLaunchError(f"{path} cannot be run: {error.strerror}.", status) from None


def flush_output() -> None:
    """Flush our own output before another process writes to the same files."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None: closed before we started
            stream.flush()


def _spawn(path: str, command: list[str], environment: Mapping[str, str], mask: Iterable[int]) -> int:
    return os.posix_spawn(path, command, environment, setsigmask=mask, setsigdef=_PYTHON_IGNORES)


class NewFolder:
    """Creates `path` with an empty `raw/`. `keep` deletes the folder that it replaced, `undo` restores it.

    Raises BadInputError if `path` exists and may not be replaced.
    """

    def __init__(self, path: Path, replace: bool) -> None:
        check_free(path, replace)
        self.path = path
        self._before: Aside | None = None
        try:
            if path.exists():
                self._before = Aside(path)
            path.mkdir(parents=True, mode=0o700)
            (path / "raw").mkdir(mode=0o700)
        except OSError as error:
            if self._before:
                self._before.restore()
            raise BadInputError(file_error(path, error, "created")) from None

    def keep(self) -> Path:
        """Delete the replaced folder, and return the path of `raw/`."""
        if self._before:
            self._before.drop()
        return self.path / "raw"

    def undo(self) -> None:
        """Delete the new folder, and restore the replaced one."""
        shutil.rmtree(self.path)
        if self._before:
            self._before.restore()


def check_creatable(folder: Path) -> None:
    """Raise BadInputError if `folder` cannot be created, because measuring ceilings first takes long."""
    with file_errors(folder, "created"):
        parent = next(place for place in folder.absolute().parents if place.exists())
        Path(tempfile.mkdtemp(prefix=".fathom-", dir=parent)).rmdir()


def check_free(folder: Path, replace: bool) -> None:
    """Raise BadInputError if `folder` exists and may not be replaced."""
    if not folder.exists():
        return
    if not replace:
        raise BadInputError(
            f"{folder} already exists; choose another name with -o, or overwrite it with --replace"
            " (in Python: replace=True)."
        )
    require_replaceable(folder)
