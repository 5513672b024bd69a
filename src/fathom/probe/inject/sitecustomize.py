"""Imported by Python at startup because `fathom run` put this folder on PYTHONPATH.

It imports nothing of Fathom, nor anything of the standard library that Python has not already loaded:
the recording must not slow down a process that never imports torch.

The program and its processes get the environment and the path that they would have without Fathom: Fathom's
variables move to `sys._fathom`, and only processes that run Python get them again (`passing.py`).
"""

import os
import sys

TYPE_CHECKING = False  # avoids importing typing
if TYPE_CHECKING:
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
ADDED = "FATHOM_ADDED"  # names of other variables that Fathom added, separated by commas
_signal = sys.modules["_signal"]
_write, _ident, _is_function = os.write, sys.modules["_thread"].get_ident, callable


class _Taken(dict):
    """Fathom's variables; `start` begins the recording of a program without torch."""

    start: "Any" = None


def _take_variables() -> _Taken:
    """Remove Fathom's variables and folder from the program's environment and path; return the variables.

    Added variables stay in the environment of C code, which reads them later.
    """
    names = ("FATHOM_RAW", "FATHOM_SCHEDULE", ADDED)
    ours = _Taken((name, os.environ.pop(name)) for name in names if name in os.environ)
    for name in filter(None, ours.get(ADDED, "").split(",")):
        value = os.environ._data.pop(  # type: ignore[attr-defined]
            os.environ.encodekey(name), None
        )
        if value is not None:
            ours[name] = os.environ.decodevalue(value)
    first, separator, rest = os.environ.get("PYTHONPATH", "").partition(os.pathsep)
    if os.path.abspath(first or ".") == HERE:
        if separator:
            os.environ["PYTHONPATH"] = rest
        else:
            del os.environ["PYTHONPATH"]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != HERE]
    return ours


def _chain() -> None:
    """Run the `sitecustomize` that Python would have found. Raises ModuleNotFoundError without one."""
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("No module named 'sitecustomize'", name="sitecustomize")
    from _frozen_importlib import module_from_spec

    ours = sys.modules.pop("sitecustomize", None)
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules["sitecustomize"] = ours  # type: ignore[assignment]
        raise


class _FathomFinder:
    """Finds `fathom` for a program whose environment lacks it. It comes last, so an installed one wins."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != "fathom":
            return None
        from _frozen_importlib_external import spec_from_file_location

        file = os.path.join(self.package, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[self.package])


class _OwnFinder:
    """Finds what this thread imports with the finders of Python's start, so the program's see no name."""

    def __init__(self, finders: "list[Any]") -> None:
        self.finders, self.thread = finders, _ident()

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if _ident() != self.thread:
            return None
        specs = (finder.find_spec(name, path, target) for finder in self.finders)
        return next((spec for spec in specs if spec is not None), None)


# Modules whose import begins the recording: other programs may mark their steps.
BEGINNING = ("torch", "llama_cpp.server.app")


class _BeginningFinder:
    """Lets later finders find a module of BEGINNING, and starts the probe once it has been imported."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name not in BEGINNING:
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        for finder in later:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: "Any") -> None:
        loader = spec.loader
        if not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module: "Any") -> None:
            try:
                execute(module)
            except BaseException as error:
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise  # without this frame
            if self in sys.meta_path:  # `importlib.util.find_spec` also asks, and then imports nothing
                sys.meta_path.remove(self)
            _start(self.raw)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            _warn(f"{spec.name} is loaded in a way that Fathom cannot detect")


_own_finders = [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]


def _start(raw: str) -> None:
    """Begin the recording, unseen by the program's profile and trace functions and import hooks."""
    profile, trace = sys.getprofile(), sys.gettrace()
    hidden = _is_function(profile)  # a profiler in C, such as cProfile, could not be restored
    finder = _OwnFinder(_own_finders)
    mask = _block(range(1, 65))  # handlers of the program wait, because they may raise
    try:
        sys.settrace(None)
        if hidden:
            sys.setprofile(None)
        sys.meta_path.insert(0, finder)
        from fathom.probe import boot

        boot.start(raw)
    except BaseException as error:
        faults = sys.modules.get("fathom.probe.faults")
        if isinstance(error, KeyboardInterrupt) or (faults and faults.belongs_to_program(error)):
            raise
        _warn(f"{type(error).__name__}: {error}")
    finally:
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        if hidden:
            sys.setprofile(profile)
        sys.settrace(trace)
        if mask is not None:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, mask)


def _block(numbers: "Any") -> "Any":
    """Block these signals in this thread; return its mask, or None where that is impossible."""
    try:
        return _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals() & set(numbers))
    except Exception:
        return None


def _warn(text: str) -> None:
    try:
        _write(2, f"fathom: this process is not recorded ({text})\n".encode(errors="replace"))
    except BaseException:
        pass


def _pass_on(ours: "dict[str, str]") -> None:
    """Give processes that run Python the recording too."""
    from _frozen_importlib import module_from_spec
    from _frozen_importlib_external import PathFinder

    spec = PathFinder.find_spec("passing", [HERE])
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        module.install(ours, HERE)


def _install() -> None:
    ours = _take_variables()
    sys._fathom = ours  # type: ignore[attr-defined]
    raw = ours.get("FATHOM_RAW")
    if raw and os.path.isdir(raw):
        ours.start = _start
        fathom = _FathomFinder(os.path.dirname(os.path.dirname(HERE)))
        sys.meta_path.append(fathom)
        _own_finders.append(fathom)
        sys.meta_path.insert(0, _BeginningFinder(raw))
        try:
            _pass_on(ours)
        except Exception as error:
            _warn(f"{type(error).__name__}: {error}")
    else:
        ours.clear()


_install()
_chain()
