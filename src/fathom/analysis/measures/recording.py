"""Portraits of all kernel families of a recording's rank, from its account and its counters."""

from __future__ import annotations

from typing import Any

from fathom.analysis.account import account
from fathom.analysis.folding import counters_of
from fathom.analysis.measures.portraits import portraits
from fathom.analysis.measures.results import Portrait
from fathom.analysis.peers import meetings
from fathom.analysis.results import Device
from fathom.errors import BadInputError
from fathom.sounding import Store

NO_TIMELINE = "This sounding has no timeline of kernels; record one with `fathom run`."
NO_KERNELS = "This program ran on the processor, which has no kernels; `fathom report` has its ledger."


def portraits_of(store: Store, machine: dict[str, Any], rank: int | None = None) -> list[Portrait]:
    """One portrait a kernel family of a rank, the first with a timeline by default; longest first.

    The ceilings of `machine` bound their work. Raises BadInputError where no kernels of it were recorded.
    """
    store = store.cached()
    chosen = _devices(store, machine, rank)
    if all(device.device == "cpu" for device in chosen):
        raise BadInputError(NO_KERNELS)
    folding = counters_of(store, chosen[0].rank)
    found = [one for device in chosen for one in portraits(store, device, machine, folding)]
    return sorted(found, key=lambda one: -one.ms)


def _devices(store: Store, machine: dict[str, Any], rank: int | None) -> list[Device]:
    """The devices of that rank, or of the first that has any."""
    met = meetings(store)
    for number in store.ranks if rank is None else [rank] * (rank in store.ranks):
        if found := account(store, number, machine, met.of.get(number)).devices:
            return found
    if rank is None:
        raise BadInputError(NO_TIMELINE)
    known = ", ".join(map(str, store.ranks))
    raise BadInputError(f"Rank {rank} has no timeline; this sounding has ranks {known}.")
