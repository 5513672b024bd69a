"""Makes one system call of the probe fail, in a program that is recorded; imported at Python's startup.

FAULT="KIND NUMBER ERROR" fails the call with this number of this kind, or with NUMBER+ also all later ones,
except for stderr.
A file that Kineto wrote is removed after EIO, and cut off after ENOSPC: torch reports neither.
CALLS names a file that gets the kind of every call, in a line.
"""

import errno
import os
import sys
from itertools import count
from pathlib import Path

KINDS = (
    "open write read close fstat stat ftruncate truncate statvfs scandir replace unlink mkdir mkfifo urandom"
)
OF_FILES = ("read", "write", "close", "__next__")
_write, _open, _close = os.write, os.open, os.close


class Fault:
    """The call that fails, and the log of all calls."""

    def __init__(self) -> None:
        self.kind, number, error = os.environ.get("FAULT", "none 1 EIO").split()
        self.forever, self.number = number.endswith("+"), int(number.rstrip("+"))
        self.error = getattr(errno, error)
        self.calls = os.environ["CALLS"]

    def log(self, kind: str) -> None:
        """Note a call. The log is not left open: it would be one of the program's files."""
        file = _open(self.calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        _write(file, f"{kind}\n".encode())
        _close(file)

    def lasts(self, args) -> bool:
        """Return whether a later call fails too: a full disk does not concern stderr."""
        return self.forever and args[:1] != (2,)

    def around(self, kind, call):
        """Return `call`, which fails as planned. A file is closed even if that fails, as on Linux."""
        numbers = count(1)

        def shim(*args, **named):
            number = next(numbers)
            self.log(kind)
            fails = kind == self.kind and (
                number == self.number or (number > self.number and self.lasts(args))
            )
            if not fails or kind.endswith("close"):
                result = call(*args, **named)
            if fails:
                raise OSError(self.error, os.strerror(self.error))
            return result

        return shim

    def of_kineto(self, replace):
        """Return `replace`, before which a file of Kineto's is spoiled as planned."""
        spoil = self.around("kineto", lambda path: None)

        def shim(path, to):
            if not Path(to).name.startswith("trace-"):
                return replace(path, to)
            try:
                spoil(path)
            except OSError as error:
                if error.errno == errno.EIO:
                    Path(path).unlink()
                else:
                    os.truncate(path, Path(path).stat().st_size // 2)
            return replace(path, to)

        return shim


class File:
    """A file object whose calls pass `fault`."""

    def __init__(self, file):
        self.file = file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __iter__(self):
        return self


def install() -> None:
    """Replace the functions that the probe calls, which are not the program's."""
    from fathom import pristine

    fault = Fault()
    for name in KINDS.split():
        setattr(pristine.os, name, fault.around(name, getattr(pristine.os, name)))
    for name in OF_FILES:
        call = fault.around(
            f"file.{name.strip('_')}", lambda file, *args, name=name: getattr(file.file, name)(*args)
        )
        setattr(File, name, call)
    pristine.os.replace = fault.of_kineto(pristine.os.replace)
    opened = fault.around("file.open", pristine.open)
    pristine.open = lambda *args, **named: File(opened(*args, **named))
    passing = getattr(os.execv, "__globals__", {})  # of `inject/passing.py`
    passing.update({name: getattr(pristine.os, name[1:]) for name in ("_open", "_read", "_close")})


if getattr(sys, "_fathom", {}).get("FATHOM_RAW"):
    install()
