"""Install the hooks of one engine, all of them or none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from fathom.probe.engines.serving import PART, Serving
from fathom.probe.faults import guarded
from fathom.probe.hooks.patches import Patches
from fathom.probe.imports import when_imported

Hooks = Mapping[str, Callable[[Any], Any]]  # "Class.attribute": wrapping of the original


def hook(serving: Serving, patches: Patches, module: str, tested: str, hooks: Hooks) -> None:
    """Wrap attributes of `module` once it is imported; with one missing, note it and wrap none."""

    @guarded(PART)
    def install(imported: Any) -> None:
        missing = [name for name in hooks if not _has(imported, name)]
        if missing:
            package = module.partition(".")[0]
            version = getattr(sys.modules.get(package), "__version__", "of this version")
            text = f"{package} {version} has no {missing[0]} in {module}; Fathom's hooks fit {tested}"
            serving.session.note("engine", f"requests were not recorded in full: {text}")
            return
        for name, wrapping in hooks.items():
            owner, _, attribute = name.rpartition(".")
            patches.wrap(attrgetter(owner)(imported) if owner else imported, attribute, wrapping)

    when_imported(module, install)


def _has(module: Any, name: str) -> bool:
    try:
        attrgetter(name)(module)
    except AttributeError:
        return False
    return True
