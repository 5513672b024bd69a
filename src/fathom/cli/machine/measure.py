"""`fathom machine measure`: measure the ceilings of this machine."""

from __future__ import annotations

from pathlib import Path

from typer import Option

from fathom.cli.console import examples, print_json, say
from fathom.cli.progress import measured
from fathom.machine.model import Machine

EXAMPLES = examples(
    "fathom machine measure",
    "fathom machine measure --only hbm,matmul.bf16",
    "fathom machine measure --only counters",
    "fathom machine measure --full --gpu all --data /mnt/dataset",
)


def measure(
    full: bool = Option(False, "--full", help="Measure everything, not only the quick set."),
    only: list[str] | None = Option(
        None, help="Ceilings by id, prefix or pattern; counters: qualify hardware counters.", metavar="ID,…"
    ),
    gpu: str | None = Option(None, help="GPU to measure. [default: the first visible one]", metavar="N|all"),
    data: Path | None = Option(None, help="A folder on the disk to measure. [default: here]"),
    force: bool = Option(False, "--force", help="Measure even if other processes use the GPU."),
    json: bool = Option(False, "--json", help="Print the machine file."),
) -> None:
    """Measure and store this machine's ceilings: bandwidths, rates, latencies, links, disk."""
    from fathom import gauges
    from fathom.machine import inventory, stored_machine
    from fathom.report import print_ceilings

    machine = inventory()
    stored_machine(machine["fingerprint"])  # report a damaged file before the measurement, not after it
    names = [name for names in only or () for name in names.split(",") if name]
    if "counters" in names:
        _qualify(machine, gpu, force, json)
        names.remove("counters")
        if not names:
            return
    plan = gauges.plan(machine, only=names, full=full, gpu=gpu, data=data, force=force)
    ceilings, missing = measured(plan)
    kept, place = gauges.keep(machine, ceilings, missing)
    if json:
        print_json(kept)
    else:
        print_ceilings(kept, ceilings, missing)
    say(f"stored in {place}")


def _qualify(machine: Machine, gpu: str | None, force: bool, json: bool) -> None:
    from fathom.gauges import counters

    devices = (int(gpu),) if gpu and gpu.isdigit() else None
    qualified = counters.qualify(machine, force=force, devices=devices)
    _, place = counters.keep_counters(machine, qualified)
    if json:
        print_json(qualified)
        return
    groups = qualified["groups"]
    print(f"{sum(map(len, groups))} counters available, in {len(groups)} single-pass groups")
    for name, why in qualified["refused"].items():
        print(f"  {name}: {why}")
    say(f"stored in {place}")
