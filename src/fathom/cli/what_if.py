"""`fathom what-if`: predict a step with changed durations."""

from __future__ import annotations

from typer import Argument, Exit, Option

from fathom.cli.console import SoundingPath, write_json

EXAMPLES = """Examples:

fathom what-if train.fathom 'family:softmax=0.5' 'input=0'

fathom what-if train.fathom 'entry:idle: python=0' 'launch=4us'

fathom what-if job.fathom 'late:7=0' 'link=2'

fathom what-if job.fathom bucket=100MB

Selectors: family:NAME, op:NAME, entry:ROW of the ledger, all-kernels, copy, communication, launch,
launch-latency, device-gap, input, sync (=0 only), recomputed, waiting (=0 only), late:RANK (=0 only), link,
exposed (=0 only), bucket, python, dispatching, blocked, gc, first-use, allocator, compilation, checkpoint. A
value is a factor, or a duration (20us) where each piece has one.

op:NAME changes the host's time in these ops; family:NAME changes their kernels.

recomputed: the part of the forward pass that the backward pass repeats (checkpointing), on host and device.
waiting=0: no rank waits for its peers at collectives. late:7=0: nobody waits for rank 7, as if it arrived
with the other ranks. link=2: collectives move their bytes twice as fast.
exposed=0: collectives overlap with compute, also of the next step; a step takes at least as long as they do.
bucket=100MB: the all-reduces of gradients of a step merge in the order of their calls until they reach this
size, or split, as with bucket_cap_mb (which counts MiB: bucket=25MiB). The host's time to call them stays.
Of jobs with more than 16 ranks,
only the one shown and the ranks that others wait for are replayed.
launch: runtime calls alone. The time before them, which a captured graph saves as well, is dispatching (in
ops) and python (between ops), including that of ops which build a kernel before its launch."""


def what_if(
    sounding: SoundingPath,
    changes: list[str] = Argument(metavar="CHANGE…", help="SELECTOR=FACTOR, one or more."),
    json: bool = Option(False, "--json", help="Print the prediction as JSON."),
    rank: int | None = Option(
        None, help="Predict this rank's step. [default: the first; with waiting or late, the longest waiting]"
    ),
) -> None:
    """Predict a step by replaying its recorded dependencies with changed durations.

    The exit status is 1 if nothing could be predicted.
    """
    from fathom.api import open
    from fathom.report import print_prediction

    prediction = open(sounding).what_if(*changes, rank=rank)
    (write_json if json else print_prediction)(prediction)
    if prediction.predicted_ms is None:
        raise Exit(1)
