"""What makers publish about their chips: data files, each figure with its source, dense, per direction."""

from fathom.machine.datasheet.gpus import find
from fathom.machine.datasheet.hosts import find_host
from fathom.machine.datasheet.sheet import Figure, Sheet, beside

__all__ = ["Figure", "Sheet", "beside", "find", "find_host"]
