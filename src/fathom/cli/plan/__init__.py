"""`fathom plan`: how long, how many, which layout, at which cost, before the hardware is there."""

from fathom.cli.console import examples, group
from fathom.cli.plan import buy, check, listing, reliability, serve, train

HELP = """Plan training and serving on machines and sizes that you do not have: time, memory,
layout, cost, and the goodput of long runs.

Each figure has an interval and its provenance: measured here, calibrated, datasheet, or assumed."""
EXAMPLES = examples(
    "fathom plan train llama3-70b --on h100 --gpus 256 --batch 1024 --seq 8192",
    "fathom plan serve llama3-70b --on h100 --weights fp8 --rate 8 --ttft 1s --tpot 50ms",
    "fathom plan reliability llama3.1-405b --on h100 --gpus 16384 --days 54",
    "fathom plan buy llama3-70b h100 b200 --weights fp8 --prices 2.5/h 4/h",
    "fathom plan check train.fathom",
)
app = group(help=HELP, epilog=EXAMPLES, no_args_is_help=True)
app.command("train", short_help="Plan the best layout of a training job.", epilog=train.EXAMPLES)(train.train)
app.command("serve", short_help="Plan TTFT, TPOT and GPUs of serving.", epilog=serve.EXAMPLES)(serve.serve)
app.command(
    "reliability",
    short_help="Plan failures and checkpoints of a long run.",
    epilog=reliability.EXAMPLES,
)(reliability.reliability)
app.command("buy", short_help="Compare two machines by time and cost.", epilog=buy.BUY_EXAMPLES)(buy.buy)
app.command("shapes", short_help="Find wasteful sizes of a model.", epilog=buy.SHAPES_EXAMPLES)(buy.shapes)
app.command("check", short_help="Compare a plan with a recording.", epilog=check.EXAMPLES)(check.check)
app.command("models", short_help="List public models that can be planned.")(listing.models)
app.command("systems", short_help="List systems that can be planned.")(listing.systems)
