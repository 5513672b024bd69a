"""Published figures of chips as data files: each with its source, dense rates, per direction."""

from fathom.machine.datasheet.gpus import find
from fathom.machine.datasheet.hosts import find_host
from fathom.machine.datasheet.sheet import Figure, Sheet, beside

__all__ = ["Figure", "Sheet", "beside", "find", "find_host"]
