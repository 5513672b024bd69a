"""The tables of a sounding: schemas, store, importers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fathom.sounding.manifest import Manifest, Phase, Problem, Rank
from fathom.sounding.naming import meant
from fathom.sounding.pack import pack, packed_name
from fathom.sounding.schema import FORMAT, TABLES, conform, empty
from fathom.sounding.sql import select
from fathom.sounding.store import Store, Writer, amend, open_store

if TYPE_CHECKING:
    from fathom.sounding.importer import import_traces
    from fathom.sounding.ncu import import_ncu, is_ncu
    from fathom.sounding.raw import import_raw

__all__ = [
    "FORMAT",
    "TABLES",
    "Manifest",
    "Phase",
    "Problem",
    "Rank",
    "Store",
    "Writer",
    "amend",
    "conform",
    "empty",
    "import_ncu",
    "import_raw",
    "import_traces",
    "is_ncu",
    "meant",
    "open_store",
    "pack",
    "packed_name",
    "select",
]

# Most commands only read, so the importers' forty modules are loaded on first use.
_IMPORTERS = {"import_traces": "importer", "import_ncu": "ncu", "is_ncu": "ncu", "import_raw": "raw"}


def __getattr__(name: str) -> Any:
    if name not in _IMPORTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_IMPORTERS[name]}"), name)
