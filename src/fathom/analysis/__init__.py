"""Pure functions over the tables of a sounding: windows, ledger, work, energy, memory, input, integrity."""

from fathom.analysis.account import Account, account
from fathom.analysis.energy import Metered, energy
from fathom.analysis.feeding import feeding
from fathom.analysis.integrity import integrity
from fathom.analysis.kinds import step_kinds
from fathom.analysis.long_steps import long_steps
from fathom.analysis.memory import memory
from fathom.analysis.peers import meetings
from fathom.analysis.results import Abstained, Examination, Step
from fathom.analysis.subjects import slow_steps
from fathom.analysis.trials import trials

__all__ = [
    "Abstained",
    "Account",
    "Examination",
    "Metered",
    "Step",
    "account",
    "energy",
    "feeding",
    "integrity",
    "long_steps",
    "meetings",
    "memory",
    "slow_steps",
    "step_kinds",
    "trials",
]
