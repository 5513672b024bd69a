"""Import results of NVIDIA Nsight Compute: `.ncu-rep` files, and the CSV that `ncu` prints."""

from fathom.sounding.ncu.importer import import_ncu, is_ncu
from fathom.sounding.ncu.launch import Launch
from fathom.sounding.ncu.report import NoReaderError
