"""Results of NVIDIA Nsight Compute (`.ncu-rep`, and the CSV that `ncu` prints) to a sounding."""

from fathom.sounding.ncu.importer import import_ncu, is_ncu
from fathom.sounding.ncu.launch import Launch

__all__ = ["Launch", "import_ncu", "is_ncu"]
