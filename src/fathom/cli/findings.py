"""`fathom findings`: causes of lost time, with predicted gains and remedies."""

from __future__ import annotations

from typer import Option

from fathom.cli.console import Machine, Price, SoundingPath, StepKind, examples, write_json

EXAMPLES = examples(
    "fathom findings train.fathom",
    "fathom findings train.fathom --json",
    "fathom findings train.fathom --leads",
)


def findings(
    sounding: SoundingPath,
    json: bool = Option(False, "--json", help="Print them as JSON."),
    leads: bool = Option(
        False,
        "--leads",
        help="Only headroom: kernel families far below their ceilings, without a known cause.",
    ),
    kind: StepKind = None,
    machine: Machine = None,
    price: Price = None,
) -> None:
    """List the causes of lost time, with their predicted gains and remedies."""
    from fathom.api import open
    from fathom.report import basis, none, print_causes, print_findings, print_leads

    examination = open(sounding, machine=machine).examine(kind, price)
    on_requests = examination.serving.findings if examination.serving else []
    if json:
        write_json(examination.leads if leads else [*on_requests, *examination.findings])
    elif leads:
        print_leads(examination.leads)
    else:
        print_causes(examination.serving)
        of = basis(examination.step)
        print_findings(examination.findings, none(examination), far=examination.leads, of=of)
