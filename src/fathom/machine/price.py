"""The price of a GPU hour, from the command line or `fathom.toml`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from fathom.errors import BadInputError
from fathom.settings import FILE, settings_in

DEFAULT = "USD"
_SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
_UNIT = r"(?:[A-Za-z]{3}|[$€£¥])"
_PRICE = re.compile(
    rf"\s*(?P<before>{_UNIT})?(?P<early>/h)?\s*(?P<amount>\d+(?:\.\d*)?|\.\d+)"
    rf"\s*(?P<after>{_UNIT})?(?P<late>/h)?\s*"
)


@dataclass(frozen=True)
class Price:
    """The price of one GPU per hour."""

    amount: float
    currency: str = DEFAULT


def parse_price(text: str, where: str = "--price") -> Price:
    """Parse the hourly price of one GPU: `3.50/h`, `$3.50/h`, `3.50 EUR/h` or `USD/h 3.50`.

    Raises BadInputError for anything else, naming `where` the price was given.
    """
    parsed = _PRICE.fullmatch(text)
    units = [unit for unit in (parsed["before"], parsed["after"]) if unit] if parsed else []
    amount = float(parsed["amount"]) if parsed else 0.0
    if (
        not parsed
        or len(units) > 1
        or bool(parsed["early"]) == bool(parsed["late"])
        or not 0 < amount < math.inf
    ):
        raise BadInputError(
            f"{where} is {text[:40]!r}, which is not a price per hour; give the price of one GPU, "
            "like 3.50/h or 3.50 EUR/h."
        )
    unit = units[0] if units else DEFAULT
    return Price(amount, _SYMBOLS.get(unit, unit.upper()))


def configured_price(folder: Path | None = None) -> Price | None:
    """Return `price` from `[cost]` of `fathom.toml` in the working directory, else in the user's settings.

    None if neither file has a price. Raises BadInputError for a file or price that cannot be read.
    """
    import platformdirs

    for file in ((folder or Path()) / FILE, platformdirs.user_config_path("fathom") / FILE):
        if (price := _of_file(file)) is not None:
            return price
    return None


def _of_file(file: Path) -> Price | None:
    settings = settings_in(file) or {}
    cost = settings.get("cost", {})
    price = cost.get("price") if isinstance(cost, dict) else None
    return None if price is None else parse_price(str(price), f"`price` in {file}")
