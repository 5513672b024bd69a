"""The qualifying process: `python -m fathom.gauges.counters JOB`, one JSON line on standard output."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from fathom.gauges.__main__ import claim_output
from fathom.gauges.child import Record
from fathom.gauges.counters.bisection import qualify
from fathom.gauges.counters.wanted import anchors, candidates
from fathom.probe.counters import explain


def main() -> None:
    """Qualify the GPU described by the only argument."""
    emit = claim_output()
    try:
        emit(_qualified(json.loads(sys.argv[1])))
    except Exception as error:
        emit({"why": explain(error)})


def _qualified(job: Record) -> dict[str, object]:
    from fathom.gauges.counters.chip import CuptiChip

    with CuptiChip(job["interval_ns"]) as chip:
        names = candidates(chip.own(), job["capability"])
        known = anchors(names)
        chip.settle_trigger(known)
        qualified = qualify(names, chip, known)
        about = {"chip": chip.name, "trigger": chip.trigger, "interval_ns": job["interval_ns"]}
    if not qualified.groups:
        return {"why": "none of the chip's counters can be streamed here"}
    return {"counters": {**asdict(qualified), **about}}


if __name__ == "__main__":
    main()
