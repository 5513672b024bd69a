"""`fathom prove`: prove that a candidate is faster than a baseline, and computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer
from typer import Argument, Option

from fathom.cli.console import examples, write_json

NOT_PROVEN = 1
EXAMPLES = examples(
    "fathom prove norm.py:plain norm.py:fused",
    "fathom prove norm.py:plain fused.py:norm --inputs norm.py:inputs --work norm.py:work --json",
    "fathom prove norm.py:plain norm.py:fused --sanitize",
    "fathom prove --command 'python a.py' 'python b.py' --metrics losses.json",
)

_ENOUGH = {"faster": ("faster",), "not-slower": ("faster", "same")}


def prove(
    baseline: str = Argument(help="module:function, file.py:function, or a command."),
    candidate: str = Argument(help="Likewise, for the version that should be faster."),
    inputs: str | None = Option(
        None, metavar="WHERE", help="inputs(seed) returns a call's arguments. [default: beside BASELINE]"
    ),
    reference: str | None = Option(
        None, metavar="WHERE", help="Function that computes the exact result. [default: BASELINE in float64]"
    ),
    variants: str | None = Option(
        None, metavar="WHERE", help="variants(seed): further inputs by name, not timed."
    ),
    work: str | None = Option(None, metavar="WHERE", help="work(*inputs): FLOPs, bytes and unit of a call."),
    flops: float | None = Option(None, help="FLOPs of a call."),
    bytes: float | None = Option(None, help="Bytes that a call must move."),
    unit: str | None = Option(None, help="Ceiling that bounds its arithmetic, like matmul.bf16."),
    precision: str | None = Option(
        None, help="Declared precision of the candidate: tf32, bf16, fp16, fp8, int8."
    ),
    reduction: int | None = Option(None, help="Number of terms summed for one element of the result."),
    allow: list[str] | None = Option(
        None, metavar="CODE", help="Code of a reason that does not refuse this candidate."
    ),
    command: bool = Option(False, "--command", help="Both sides are whole commands."),
    metrics: Path | None = Option(
        None,
        help="File that both commands write, which is compared: .json or .npz, arrays by name. Without "
        "it the candidate is refused, unless --allow nothing-compared.",
    ),
    sanitize: bool = Option(
        False,
        "--sanitize",
        help="First run the candidate's kernels on small inputs under compute-sanitizer's memcheck and "
        "racecheck.",
    ),
    margin: float = Option(0.01, help="Largest difference that counts as the same, as a share."),
    latency: Literal["removed", "included"] = Option(
        "removed", help="Whether the launch latency of a GPU counts."
    ),
    cache: Literal["cold", "warm"] = Option("cold", help="State of a GPU's L2 that decides the verdict."),
    budget_s: float = Option(120.0, "--budget", metavar="SECONDS", help="Maximum time for timing."),
    patience_s: float = Option(
        600.0, "--patience", metavar="SECONDS", help="Maximum time for one answer of a process."
    ),
    seed: int | None = Option(None, help="Seed of the inputs. [default: random]"),
    fresh: Literal["spawn", "fork"] = Option("spawn", help="How processes are started; fork is faster."),
    require: Literal["faster", "not-slower"] = Option("faster", help="Condition for exit status 0."),
    json: bool = Option(False, "--json", help="Print the whole verdict as JSON."),
) -> None:
    """Prove that a candidate is faster than a baseline, and computes the same.

    Exit status: 0 if the verdict meets --require, 1 if it does not or the candidate is refused, 2 if the
    input cannot be used.
    """
    given = locals()
    from fathom.cli.progress import shown
    from fathom.referee import Pair, Settings, chosen_from, command_of, prove_pair
    from fathom.report import print_verdict

    sides = [command_of(side) if command else side for side in (baseline, candidate)]
    given |= {"plain": sides[0], "tuned": sides[1], "allow": tuple(allow or ())}
    pair = chosen_from(Pair, given).with_inputs()
    with shown("starting") as seen:
        messages = {"progress": seen.progress, "tell": seen.tell}
        verdict = prove_pair(pair, chosen_from(Settings, given | messages))
    (write_json if json else print_verdict)(verdict)
    raise typer.Exit(0 if verdict.verdict in _ENOUGH[require] else NOT_PROVEN)
