"""This machine: inventory, fingerprint, measured ceilings, and the store of machine files.

The subpackages `checks`, `compare` and `datasheet` and the modules `model` and `nvml` are public too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.machine.architectures import architecture
    from fathom.machine.ceilings import Ceiling, Missing, find_ceiling, from_machine, missing_from, to_records
    from fathom.machine.counters import counters_of, may_count, why_no_counters
    from fathom.machine.cpu import read_cpu
    from fathom.machine.disks import filesystem
    from fathom.machine.limits import (
        DATASHEET,
        DOUBTFUL,
        MEASURED,
        MISSING,
        Limits,
        bounds_of,
        lack_of_limits,
        limits_of,
        peaks_of,
        why_no_limits,
    )
    from fathom.machine.price import Price, configured_price, parse_price
    from fathom.machine.shape import require_machine
    from fathom.machine.store import (
        HOME,
        MachineFileError,
        bounding,
        home,
        read_machine,
        remember,
        remembered,
    )
    from fathom.machine.survey import (
        described,
        fingerprint,
        free_bytes,
        inventory,
        known_machine,
        memory_bytes,
        stored_machine,
        with_datasheet,
    )
    from fathom.machine.toolkit import toolkit_program

# `limits` needs NumPy and YAML, which a machine that only records may lack.
__all__, __getattr__ = exports(__name__)
