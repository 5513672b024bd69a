"""`fathom plan`: how long, how many, which layout, at which cost, before the hardware is there."""

from __future__ import annotations

from fathom.cli.console import examples, group
from fathom.cli.plan import check, listing, train

__all__ = ["app"]

HELP = """Plan training on machines and sizes that you do not have: step time, memory, layout, cost.

Each figure has an interval and its provenance: measured here, calibrated, datasheet, or assumed."""
EXAMPLES = examples(
    "fathom plan train llama3-70b --on h100 --gpus 256 --batch 1024 --seq 8192",
    "fathom plan check train.fathom",
)
app = group(help=HELP, epilog=EXAMPLES, no_args_is_help=True)
app.command("train", epilog=train.EXAMPLES)(train.train)
app.command("check", epilog=check.EXAMPLES)(check.check)
app.command("models")(listing.models)
app.command("systems")(listing.systems)
