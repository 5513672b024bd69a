"""Load a server through aiperf, and judge the run: `drive` one rate, `sweep` several."""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.load.asking import require_answer
    from fathom.load.generator import drive, read
    from fathom.load.judge import Slo, judged
    from fathom.load.key import api_key
    from fathom.load.knee import frontier
    from fathom.load.results import (
        DEFINITIONS,
        Distribution,
        Load,
        Point,
        Refusal,
        Sent,
        Server,
        Spread,
        State,
        Sweep,
    )
    from fathom.load.schedule import Workload, rows, shared_share
    from fathom.load.scraping import scraped
    from fathom.load.server import UNREAD, server_account

__all__, __getattr__ = exports(__name__)
