"""Exports of NVIDIA Nsight Systems: SQLite databases, and reports if `nsys` is on the PATH."""

from fathom.sounding.nsys.importer import is_nsys, read_nsys
from fathom.sounding.nsys.report import ENDINGS, exported
