"""`fathom watch`: follow a program that runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from fathom.cli.console import examples, say, write_json

if TYPE_CHECKING:
    from fathom.analysis.live import Live

EXAMPLES = examples(
    "fathom run -o train.fathom -- python train.py   (in another terminal)",
    "fathom watch train.fathom",
    "fathom watch train.fathom --alert 20",
    "fathom watch train.fathom --serve 9464 > watch.log &",
    "fathom watch train.fathom --once --json",
)


def watch(
    recording: Path | None = Argument(
        None,
        help="The folder that `fathom run` writes to, or one with a job's parts."
        " [default: the newest one here that runs]",
        show_default=False,
    ),
    alert: float | None = Option(
        None,
        metavar="PERCENT",
        help="Raise an alert if the steps become slower than the first clean ones by so much. Then a"
        " timeline of a few steps is recorded, and what changed is shown.",
    ),
    alert_steps: int = Option(50, metavar="N", help="For so many steps in a row."),
    serve: str | None = Option(
        None,
        metavar="[ADDRESS:]PORT",
        help="Serve metrics for Prometheus at /metrics; to this machine alone unless an address is given.",
    ),
    findings: bool = Option(
        True,
        "--findings/--no-findings",
        help="Examine the recording after each timeline, in a process of low priority.",
    ),
    every: float = Option(10.0, metavar="SECONDS", help="Time between two lines if there is no terminal."),
    plain: bool = Option(False, "--plain", help="Print lines on a terminal too."),
    once: bool = Option(False, "--once", help="Print the present state, and exit."),
    json: bool = Option(False, "--json", help="Print JSON: one line for each line of text."),
) -> None:
    """Show the steps of a program that runs: time, waits, goodput, sensors, findings.

    It reads what `fathom run` records anyway. Ctrl-C ends the watch, not the program.
    """
    from rich.console import Console

    from fathom.watch import Rule, Watch, in_lines, on_screen, print_page, running, served
    from fathom.watch import plain as print_plain

    rule = None if alert is None else Rule(alert, alert_steps)
    watched = Watch(running(recording), rule, examine=findings and not once)
    console = Console(highlight=False)
    newest: list[Live | None] = [None]

    def publish(live: Live) -> None:
        newest[0] = live

    def write(before: Live | None, live: Live, due: bool) -> None:
        if not json:
            print_plain(before, live, due)
        elif due:
            write_json(live)

    if once:
        watched.poll()
        write_json(watched.view()) if json else print_page(watched.view(), console)
        return
    with served(serve, lambda: newest[0]) as url:
        try:
            if console.is_terminal and not plain and not json:
                on_screen(watched, publish, console, url or "")
            else:
                if url:
                    say(f"metrics are at {url}")
                in_lines(watched, publish, write, every)
        finally:
            watched.close()
