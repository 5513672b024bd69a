"""The tables of a sounding: schemas, store, importers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.sounding.communication import identify_collective
    from fathom.sounding.families import short_name
    from fathom.sounding.importer import import_traces
    from fathom.sounding.manifest import (
        COMPILER,
        LOADERS,
        TRACED,
        Counted,
        Facts,
        HotSpot,
        LoaderFacts,
        Manifest,
        Phase,
        Place,
        Problem,
        Rank,
    )
    from fathom.sounding.merging import merge, numbers
    from fathom.sounding.naming import meant
    from fathom.sounding.ncu import Launch, NoReaderError, import_ncu, is_ncu
    from fathom.sounding.packing import pack, packed_name
    from fathom.sounding.parts import Parts, collect
    from fathom.sounding.raw import StepTimes, import_raw, step_times
    from fathom.sounding.remote import download, is_url, upload
    from fathom.sounding.repetition import REPETITION
    from fathom.sounding.resizing import RESIZED, SCATTER, SCATTER_NS
    from fathom.sounding.schema import COUNTERS, FORMAT, TABLES, conform, empty
    from fathom.sounding.silence import SILENCE, hole_in
    from fathom.sounding.sql import select
    from fathom.sounding.store import MOST_CACHED, Store, Writer, amend, open_store

# Most commands only read a sounding, so they should not load the forty modules of the importers.
__all__, __getattr__ = exports(__name__)
