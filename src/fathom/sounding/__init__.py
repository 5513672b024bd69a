"""The tables of a sounding: schemas, store, importers."""

from fathom.sounding.importer import import_traces
from fathom.sounding.manifest import Manifest, Phase, Problem, Rank
from fathom.sounding.naming import meant
from fathom.sounding.ncu import import_ncu, is_ncu
from fathom.sounding.pack import pack, packed_name
from fathom.sounding.raw import import_raw
from fathom.sounding.schema import FORMAT, TABLES, conform, empty
from fathom.sounding.sql import select
from fathom.sounding.store import Store, Writer, amend, open_store

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
