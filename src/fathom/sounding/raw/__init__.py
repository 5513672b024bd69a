"""Makes a sounding of the raw records that the probe and its parent left behind."""

from fathom.sounding.raw.importer import import_raw

__all__ = ["import_raw"]
