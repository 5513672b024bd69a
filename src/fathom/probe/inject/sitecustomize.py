"""Imported by Python at startup because `fathom run` put this folder on PYTHONPATH.

It imports nothing of Fathom, nor anything of the standard library that Python has not already loaded:
the recording must not slow down a process that never imports torch.
"""

import os
import sys

TYPE_CHECKING = False  # avoids importing typing
if TYPE_CHECKING:
    from typing import Any


def _chain(here: str) -> None:
    """Run the `sitecustomize` that Python would have found without this folder."""
    from _frozen_importlib_external import PathFinder

    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
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


class _TorchFinder:
    """Lets other finders find torch, and starts the probe once torch has been imported."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._follow(spec)
                return spec
        return None

    def _follow(self, spec: "Any") -> None:
        loader, raw = spec.loader, self.raw
        if not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module: "Any") -> None:
            execute(module)
            _start(raw)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            _warn("torch is loaded in a way that Fathom cannot detect")


def _start(raw: str) -> None:
    try:
        from fathom.probe import boot

        boot.start(raw)
    except Exception as error:
        _warn(f"{type(error).__name__}: {error}")


def _warn(text: str) -> None:
    try:
        sys.stderr.write(f"fathom: this process is not recorded ({text})\n")
    except Exception:
        pass


def _install() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    raw = os.environ.get("FATHOM_RAW")
    if raw:
        sys.meta_path.append(_FathomFinder(os.path.dirname(os.path.dirname(here))))
        sys.meta_path.insert(0, _TorchFinder(raw))
    _chain(here)


_install()
