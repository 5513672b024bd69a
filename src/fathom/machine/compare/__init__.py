"""Compare two machines: whether results carry over from one to the other, and by how much ceilings differ."""

from fathom.machine.compare.comparing import compare, settings_carried, settings_lost
from fathom.machine.compare.contract import (
    CeilingRatio,
    ComparedMachine,
    Difference,
    MachineComparison,
    ResultKind,
    Unknown,
)
