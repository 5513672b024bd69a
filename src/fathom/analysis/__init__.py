"""Pure functions over the tables of a sounding: windows, ledger, work, energy, memory, input, integrity.

Other rooms may import from here, and from `causes`, `entries`, `intervals`, `results` and the packages
`communication`, `compare`, `explaining`, `folding`, `measures`, `replay`, `serving` and `work`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.account import Account, account_of
    from fathom.analysis.alerted import representative
    from fathom.analysis.counted import counted_steps
    from fathom.analysis.device import detail
    from fathom.analysis.energy import Metered, energy_of, priced
    from fathom.analysis.feeding import input_of
    from fathom.analysis.first_use import first_uses
    from fathom.analysis.goodput import goodput_of
    from fathom.analysis.integrity import integrity_of
    from fathom.analysis.kinds import step_kinds
    from fathom.analysis.long_steps import long_steps_of
    from fathom.analysis.making import makers
    from fathom.analysis.many_ranks import Spread, accounts_of, first_accounts, is_large
    from fathom.analysis.memory import memory_of
    from fathom.analysis.operators import BACKWARD, FORWARD, OPTIMIZER, Operators, operators_of
    from fathom.analysis.own_code import in_stretches, own_code_of
    from fathom.analysis.peers import Meetings, meetings
    from fathom.analysis.rank_summaries import summaries
    from fathom.analysis.resources import ENTRIES, EVALUATION, STALL
    from fathom.analysis.results import Abstained, Examination, Step
    from fathom.analysis.sampled import LINES, OTHER_LINES, makes_batches, where
    from fathom.analysis.step_memory import MEMORY_CATEGORIES, at_peak, by_category, memory_over_step, peak_of
    from fathom.analysis.subjects import CPU, Subject, label, slow_steps, window_entries
    from fathom.analysis.trials import trial_results

# A report needs the result types, but not the functions that compute them.
__all__, __getattr__ = exports(__name__)
