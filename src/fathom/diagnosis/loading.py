"""The gain of other numbers of loader workers, from the recorded stages of making a batch."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fathom.diagnosis.ranks import Ranks
from fathom.diagnosis.rules.candidates import contended
from fathom.diagnosis.rules.input.loader import loader_of, lost_of
from fathom.diagnosis.rules.input.workers import step_ms_with
from fathom.diagnosis.signals import Signals, UnknownSignalError
from fathom.machine.model import Machine
from fathom.sounding import Store


def loader_gains(
    store: Store, machine: Machine, workers: Iterable[int], alone: bool = False
) -> dict[int, float]:
    """Return the share of the step that each number of workers saves on this host; negative for a loss.

    With `alone`, as if no other program used the cores. Empty if the loader's stages were not recorded.
    """
    signals = Ranks(store.cached(), machine, {}).signals
    return {} if signals is None else gains_of(signals, workers, alone)


def gains_of(signals: Signals, workers: Iterable[int], alone: bool = False) -> dict[int, float]:
    """Return the shares of `loader_gains` from signals.

    The present step is modelled too, because workers do not mend waits that making batches does not explain.
    A program on a CPU that makes its own batches never waits for them, so that gain is against the measured
    step, unless other programs lengthened it.
    """
    try:
        _, lost = lost_of(signals)
        loader, step_ms = loader_of(signals, lost), signals["step.ms"]
    except UnknownSignalError:
        return {}
    if loader is None or not step_ms:
        return {}
    if alone:
        loader = msgspec.structs.replace(loader, others_cores=0.0)
    batches, now_ms = signals.number("input.micro_steps", 1.0), step_ms_with(loader, loader.workers)
    measured = loader.on_processor and loader.workers and not alone and not contended(signals)
    before = {count: step_ms / batches if measured and not count else now_ms for count in workers}
    return {count: batches * (ms - step_ms_with(loader, count)) / step_ms for count, ms in before.items()}
