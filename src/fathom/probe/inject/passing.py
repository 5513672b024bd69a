"""Pass the recording on to new processes that run Python; others get the program's own environment.

Loaded at Python's startup, so it imports only what Python has loaded already.
"""

import os

TYPE_CHECKING = False  # avoids importing typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

PYTHON = ("python", "pypy")
LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "orterun", "srun", "ray", "raylet")
# Programs that run another program, or a script, named in their arguments.
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "xargs")
_PREFIXES = ("env", "nohup", "nice", "ionice", "numactl", "taskset", "timeout", "time", "setsid", "stdbuf")
WRAPPERS = (*_SHELLS, *_PREFIXES, "chrt", "uv", "conda", "poetry")
SCRIPTS = (".sh", ".bash")
MOST_BYTES = 65_536  # of a script that are read
_STOPS = frozenset("ISE")  # options with which Python does not import sitecustomize, or ignores its variables
_open, _read, _close, _isdir = os.open, os.read, os.close, os.path.isdir
_decode, _basename, _environ = os.fsdecode, os.path.basename, os.environ


def runs_python(program: str, arguments: "Sequence[str]") -> bool:
    """Return whether a command runs Python or may start it; `arguments` begin with its name."""
    name = _basename(program)
    if name.startswith(PYTHON):
        return not _is_isolated(arguments[1:])
    if name in LAUNCHERS:
        return True
    if name in WRAPPERS:
        scripts = [word for word in arguments[1:] if word.endswith(SCRIPTS)]
        return any(map(mentions_python, [*arguments[1:], *map(_text_of, scripts)]))
    text = _text_of(program)
    return text.startswith("#!") and mentions_python(text)


def mentions_python(text: str) -> bool:
    """Return whether a command line or script names Python or a launcher."""
    return any(name in text for name in (*PYTHON, *LAUNCHERS[:3], "mpirun", "mpiexec", "srun", ".py"))


def _is_isolated(arguments: "Sequence[str]") -> bool:
    for word in arguments:
        if not word.startswith("-") or word.startswith("--") or word[1:2] in ("c", "m", ""):
            return False
        if word[1] not in "XW" and _STOPS & set(word[1:]):
            return True
    return False


def _text_of(path: str) -> str:
    try:
        file = _open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return _read(file, MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
    finally:
        _close(file)


class Passing:
    """Adds Fathom's variables `ours` and its `folder` to the environment of new processes."""

    def __init__(self, ours: "dict[str, str]", folder: str) -> None:
        self.ours, self.folder = ours, folder

    def wanted(self, programs: "Sequence[Any]", arguments: "Sequence[Any]") -> bool:
        """Return whether a command gets the recording; `programs` are the places where it may be."""
        raw = self.ours.get("FATHOM_RAW")
        if not raw or not _isdir(raw):
            return False
        words = [_decode(word) for word in arguments]
        paths = [_decode(program) for program in programs]
        return any(runs_python(path, words) for path in paths[:64])

    def added(self, environment: "Mapping[Any, Any]") -> "dict[str, str]":
        """Return the environment of a process that gets the recording."""
        mine = {_decode(name): _decode(value) for name, value in environment.items()}
        before = mine.get("PYTHONPATH")
        path = self.folder if not before else self.folder + os.pathsep + before
        return {**mine, **self.ours, "PYTHONPATH": path}

    def hides(self) -> bool:
        """Return whether variables for C code are in this process's environment, but not in `os.environ`."""
        return bool(self.ours.get("FATHOM_ADDED"))

    def environment(self, programs: "Any", arguments: "Any", given: "Any") -> "Any":
        """Return the environment for a new process; None: the one that it would inherit."""
        try:
            mine = _environ if given is None else given
            if self.wanted(programs, arguments):
                return self.added(mine)
            return dict(mine) if given is None and self.hides() else given
        except Exception:
            return given


def install(ours: "dict[str, str]", folder: str) -> None:
    """Watch the functions that start processes."""
    passing = Passing(ours, folder)
    _watch_os(passing)
    try:
        import _posixsubprocess
    except ImportError:
        return
    original = _posixsubprocess.fork_exec

    def fork_exec(arguments: "Any", programs: "Any", *rest: "Any") -> "Any":
        # rest: close_fds, pass_fds, cwd, environment as a list of b"NAME=value" or None, …
        before = rest[3]
        given = None if before is None else dict(entry.split(b"=", 1) for entry in before if b"=" in entry)
        after = passing.environment(programs, arguments, given)
        if after is not None and after is not given:
            names = [os.fsencode(f"{_decode(name)}={_decode(value)}") for name, value in after.items()]
            rest = (*rest[:3], names, *rest[4:])
        return original(arguments, programs, *rest)

    _posixsubprocess.fork_exec = _like(original, fork_exec)


def _watch_os(passing: Passing) -> None:
    execv, execve, system = os.execv, os.execve, os.system

    def watched_execv(path: "Any", argv: "Any", /) -> "Any":
        environment = passing.environment([path], argv, None)
        return execv(path, argv) if environment is None else execve(path, argv, environment)

    def watched_execve(path: "Any", argv: "Any", env: "Any", **more: "Any") -> "Any":
        return execve(path, argv, passing.environment([path], argv, env), **more)

    def watched_system(command: "Any") -> int:
        environment = passing.environment(["/bin/sh"], ["sh", "-c", command], None)
        changed = {} if environment is None else environment
        names = [name for name, value in changed.items() if _environ.get(name) != value]
        for name in names:
            os.putenv(name, changed[name])
        try:
            return system(command)
        finally:
            for name in names:
                _restore(name)

    os.execv, os.execve = _like(execv, watched_execv), _like(execve, watched_execve)
    os.system = _like(system, watched_system)
    for name in ("posix_spawn", "posix_spawnp"):
        if hasattr(os, name):
            setattr(os, name, _spawning(passing, getattr(os, name)))


def _spawning(passing: Passing, original: "Callable[..., Any]") -> "Callable[..., Any]":
    def watched(path: "Any", argv: "Any", env: "Any", /, **more: "Any") -> "Any":
        return original(path, argv, passing.environment([path], argv, env), **more)

    return _like(original, watched)


def _restore(name: str) -> None:
    if name in _environ:
        os.putenv(name, _environ[name])
    else:
        os.unsetenv(name)


def _like(original: "Any", ours: "Any") -> "Any":
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(ours, name, getattr(original, name, None))
    return ours
