"""Communication between ranks: collectives by operation and size, overlap, and late ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.analysis.communication.account import communication_of, placed_groups, slowed_by_collectives
    from fathom.analysis.communication.bandwidth import at_their_size, bus_factor, ceilings_of
    from fathom.analysis.communication.collectives import CALL, collectives_of
    from fathom.analysis.communication.fixed import FixedTime, fixed_time, shared_out
    from fathom.analysis.communication.host import (
        CALLS,
        host_collectives,
        met_on_host,
        on_host,
        slowed_on_host,
        undisturbed_ms,
    )
    from fathom.analysis.communication.late import (
        HOST,
        INPUT,
        MEETING,
        NO_CAUSE,
        ON_HOST,
        WORK,
        cause_of_lateness,
        expert_loads,
        in_whole_steps,
        jitter_of,
        late_ranks,
        lead_ms,
        longest_waiting,
        lost_by,
        ms_by_entry,
        steadily_late,
        to_clean,
    )
    from fathom.analysis.communication.operations import operation, recorded_calls
    from fathom.analysis.communication.pipeline import pipeline_of
    from fathom.analysis.communication.results import (
        Collective,
        Communication,
        ExpertLoad,
        Jitter,
        LateRank,
        LostTime,
        Pipeline,
        PlacedGroup,
        Stage,
    )

__all__, __getattr__ = exports(__name__)
