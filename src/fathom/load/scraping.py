"""Read a server's `/metrics` before, during and after a load test, in a thread."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from importlib.util import find_spec
from urllib.parse import urlsplit

from fathom.load.asking import endpoint
from fathom.load.exposition import Reading, reading
from fathom.load.key import authorise
from fathom.units import MIB

EVERY_S = 1.0  # between readings
TIMEOUT_S = 5.0
MOST = 16 * MIB  # of an answer
MISSING = "prometheus_client is not installed (pip install 'fathom-perf[serve]')"


class UnreadableError(Exception):
    """The server's metrics cannot be read; the message says why."""


@dataclass
class Scraped:
    """The readings in order, with the reason if there are none, and how many failed later."""

    url: str
    readings: list[Reading] = field(default_factory=list)
    why: str = ""
    failed: int = 0
    key: str | None = field(default=None, repr=False)


def scrape(url: str, key: str | None = None) -> Reading:
    """Return the metrics at an address now, asked for with the key. Raises UnreadableError."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise UnreadableError("its address is not one of HTTP")
    try:
        asked = authorise(urllib.request.Request(url), key)
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            body = answer.read(MOST + 1)
    except urllib.error.HTTPError as error:
        raise UnreadableError(f"it answers with status {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise UnreadableError(str(getattr(error, "reason", error)) or type(error).__name__) from None
    if len(body) > MOST:
        raise UnreadableError(f"its answer is larger than {MOST // MIB} MiB")
    try:
        result = reading(body.decode("utf-8", "replace"), time.time_ns())
    except (ValueError, LookupError):  # the parser raises IndexError for some damage
        raise UnreadableError("its answer is not in Prometheus' text format") from None
    if result is None:
        raise UnreadableError("it has no metrics of vLLM or SGLang")
    return result


@contextmanager
def scraped(url: str, key: str | None = None, every_s: float = EVERY_S) -> Iterator[Scraped]:
    """Context manager that reads the metrics of the server at `url` at its begin, regularly, and at its end.

    If the first reading fails, there are no others, and `why` has the reason; nothing is raised.
    """
    result = Scraped(endpoint(url, "metrics"), key=key)
    if find_spec("prometheus_client") is None:
        result.why = MISSING
    else:
        _read(result)
        result.why = result.why if not result.readings else ""
    if not result.readings:
        yield result
        return
    ended = threading.Event()
    thread = threading.Thread(target=_follow, args=(result, ended, every_s), daemon=True)
    thread.start()
    try:
        yield result
    finally:
        ended.set()
        thread.join()
        _read(result)


def _follow(result: Scraped, ended: threading.Event, every_s: float) -> None:
    while not ended.wait(every_s):
        _read(result)


def _read(result: Scraped) -> None:
    try:
        result.readings.append(scrape(result.url, result.key))
    except UnreadableError as error:
        result.failed += 1
        result.why = str(error)
