"""Fathom: where your accelerator's time goes, all the way down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fathom.errors import FathomError
from fathom.version import VERSION as __version__  # noqa: N811

if TYPE_CHECKING:
    from fathom.api import Sounding, compare, open, plan, plan_serving, record
    from fathom.probe import region, step
    from fathom.referee import prove
    from fathom.tuner import adapt

__all__ = [
    "FathomError",
    "Sounding",
    "__version__",
    "adapt",
    "compare",
    "open",
    "plan",
    "plan_serving",
    "prove",
    "record",
    "region",
    "step",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    # Importing fathom inside a recorded program must cost nothing, so everything else loads on first use.
    from importlib import import_module

    if name in ("step", "region"):
        return getattr(import_module("fathom.probe"), name)
    if name == "prove":
        return getattr(import_module("fathom.referee"), name)
    if name == "adapt":
        return getattr(import_module("fathom.tuner"), name)
    if name in ("Sounding", "compare", "open", "plan", "plan_serving", "record"):
        return getattr(import_module("fathom.api"), name)
    raise AttributeError(f"module 'fathom' has no attribute '{name}'")


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic `%%fathom`; IPython calls this for `%load_ext fathom`."""
    from importlib import import_module

    import_module("fathom.integrations.notebook").load(shell)
