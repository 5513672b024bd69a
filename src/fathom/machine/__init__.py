"""This machine: inventory, fingerprint, the ceilings measured on it, and the store that keeps them."""

from fathom.machine.ceilings import Ceiling, Missing
from fathom.machine.counters import counters_of, may_count, why_no_counters
from fathom.machine.inventory import fingerprint, inventory
from fathom.machine.known import known_machine
from fathom.machine.store import MachineFileError, remember, remembered

__all__ = [
    "Ceiling",
    "MachineFileError",
    "Missing",
    "counters_of",
    "fingerprint",
    "inventory",
    "known_machine",
    "may_count",
    "remember",
    "remembered",
    "why_no_counters",
]
