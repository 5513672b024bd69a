"""`fathom watch`: follow a running program."""

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
        help="Folder that `fathom run` writes to, or a folder with the parts of a job."
        " [default: the newest running recording in this folder]",
        show_default=False,
    ),
    alert: float | None = Option(
        None,
        metavar="PERCENT",
        help="Raise an alert if steps become this much slower than the first clean steps. Fathom then records"
        " a timeline of a few steps and shows which entries of the ledger changed.",
    ),
    alert_steps: int = Option(50, metavar="N", help="Number of consecutive slow steps that raises an alert."),
    serve: str | None = Option(
        None,
        metavar="[ADDRESS:]PORT",
        help="Serve Prometheus metrics at /metrics, only to this machine unless an address is given.",
    ),
    findings: bool = Option(
        True,
        "--findings/--no-findings",
        help="Examine the recording after each timeline, in a process of low priority.",
    ),
    every: float = Option(10.0, metavar="SECONDS", help="Time between lines without a terminal."),
    plain: bool = Option(False, "--plain", help="Print lines even on a terminal."),
    once: bool = Option(False, "--once", help="Print the current state and exit."),
    json: bool = Option(False, "--json", help="Print JSON lines instead of text."),
) -> None:
    """Show a running program: step time, waits, goodput, sensors and findings.

    The watch only reads the records that `fathom run` writes. Ctrl-C ends the watch, not the program.
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
