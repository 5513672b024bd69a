"""The tables of a sounding: schemas, store, importers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fathom.sounding.manifest import Manifest, Phase, Problem, Rank
from fathom.sounding.naming import meant
from fathom.sounding.packing import pack, packed_name
from fathom.sounding.schema import COUNTERS, FORMAT, TABLES, conform, empty
from fathom.sounding.sql import select
from fathom.sounding.store import Store, Writer, amend, open_store

if TYPE_CHECKING:
    from fathom.sounding.facts import COMPILER, LOADERS, Counted, LoaderFacts, Place
    from fathom.sounding.importer import import_traces
    from fathom.sounding.ncu import Launch, NoReaderError, import_ncu, is_ncu
    from fathom.sounding.raw import import_raw
    from fathom.sounding.silence import SILENCE, hole_in

__all__ = [
    "COMPILER",
    "COUNTERS",
    "FORMAT",
    "LOADERS",
    "SILENCE",
    "TABLES",
    "Counted",
    "Launch",
    "LoaderFacts",
    "Manifest",
    "NoReaderError",
    "Phase",
    "Place",
    "Problem",
    "Rank",
    "Store",
    "Writer",
    "amend",
    "conform",
    "empty",
    "hole_in",
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
_LATER = {
    "import_traces": "importer",
    "import_raw": "raw",
    **dict.fromkeys(("Launch", "NoReaderError", "import_ncu", "is_ncu"), "ncu"),
    **dict.fromkeys(("COMPILER", "LOADERS", "Counted", "LoaderFacts", "Place"), "facts"),
    **dict.fromkeys(("SILENCE", "hole_in"), "silence"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
