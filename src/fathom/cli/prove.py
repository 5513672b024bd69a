"""`fathom prove`: prove that a candidate is faster than a baseline, and computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fathom.cli.console import say, write_json
from fathom.errors import BadInputError

if TYPE_CHECKING:
    from fathom.referee import Verdict

NOT_PROVEN, BAD_INPUT = 1, 2
EXAMPLES = """Examples:

fathom prove norm.py:plain norm.py:fused

fathom prove norm.py:plain fused.py:norm --inputs norm.py:inputs --work norm.py:work --json

fathom prove --command 'python a.py' 'python b.py' --metrics losses.json"""


_ENOUGH = {"faster": ("faster",), "not-slower": ("faster", "same")}


def prove(
    baseline: Annotated[str, typer.Argument(help="module:function, file.py:function, or a command.")],
    candidate: Annotated[str, typer.Argument(help="Likewise, for the version that should be faster.")],
    inputs: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="inputs(seed) returns a call's arguments. [default: beside BASELINE]"
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="Function that computes the exact result. [default: BASELINE in float64]"
        ),
    ] = None,
    variants: Annotated[
        str | None, typer.Option(metavar="WHERE", help="variants(seed): further inputs by name, not timed.")
    ] = None,
    work: Annotated[
        str | None, typer.Option(metavar="WHERE", help="work(*inputs): FLOPs, bytes and unit of a call.")
    ] = None,
    flops: Annotated[float | None, typer.Option(help="FLOPs of a call.")] = None,
    bytes_: Annotated[float | None, typer.Option("--bytes", help="Bytes that a call must move.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="Ceiling that bounds its arithmetic, like matmul.bf16.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Declared precision of the candidate: tf32, bf16, fp16, fp8.")
    ] = None,
    reduction: Annotated[
        int | None, typer.Option(help="Number of terms summed for one element of the result.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="CODE", help="Code of a reason that does not refuse this candidate."),
    ] = None,
    command: Annotated[bool, typer.Option("--command", help="Both sides are whole commands.")] = False,
    metrics: Annotated[
        Path | None,
        typer.Option(
            help="File that both commands write, which is compared: .json or .npz, arrays by name. Without "
            "it the candidate is refused, unless --allow nothing-compared."
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option(help="Largest difference that counts as the same, as a share.")
    ] = 0.01,
    latency: Annotated[
        Literal["removed", "included"], typer.Option(help="Whether the launch latency of a GPU counts.")
    ] = "removed",
    cache: Annotated[
        Literal["cold", "warm"], typer.Option(help="State of a GPU's L2 that decides the verdict.")
    ] = "cold",
    budget: Annotated[float, typer.Option(metavar="SECONDS", help="Maximum time for timing.")] = 120.0,
    patience: Annotated[
        float, typer.Option(metavar="SECONDS", help="Maximum time for one answer of a process.")
    ] = 600.0,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs. [default: random]")] = None,
    fresh: Annotated[
        Literal["spawn", "fork"], typer.Option(help="How processes are started; fork is faster.")
    ] = "spawn",
    require: Annotated[
        Literal["faster", "not-slower"], typer.Option(help="Condition for exit status 0.")
    ] = "faster",
    json: Annotated[bool, typer.Option("--json", help="Print the whole verdict as JSON.")] = False,
) -> None:
    """Prove that a candidate is faster than a baseline, and computes the same.

    Exit status: 0 if the verdict meets --require, 1 if it does not or the candidate is refused, 2 if the
    input cannot be used.
    """
    from fathom.cli.progress import shown
    from fathom.referee import Pair, Settings, command_of, prove_pair

    try:
        pair = Pair(
            plain=command_of(baseline) if command else baseline,
            tuned=command_of(candidate) if command else candidate,
            inputs=inputs,
            reference=reference,
            variants=variants,
            work=work,
            precision=precision,
            reduction=reduction,
            allow=tuple(allow or ()),
            metrics=metrics,
        ).with_inputs()
        with shown("starting") as seen:
            settings = Settings(
                margin=margin,
                budget_s=budget,
                latency=latency,
                cache=cache,
                patience_s=patience,
                seed=seed,
                fresh=fresh,
                flops=flops,
                bytes=bytes_,
                unit=unit,
                progress=seen.progress,
                tell=seen.tell,
            )
            verdict = prove_pair(pair, settings)
    except BadInputError as error:
        say(str(error))
        raise typer.Exit(BAD_INPUT) from None
    _print(verdict, json)
    raise typer.Exit(0 if verdict.verdict in _ENOUGH[require] else NOT_PROVEN)


def _print(verdict: Verdict, json: bool) -> None:
    from fathom.report import print_verdict

    if json:
        write_json(verdict)
    else:
        print_verdict(verdict)
