"""Import the raw records of the probe and the recorder."""

from fathom.sounding.raw.importer import import_raw

__all__ = ["import_raw"]
