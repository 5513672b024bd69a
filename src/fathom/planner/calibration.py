"""Constants that were fitted to published runs, as their files have them."""

from __future__ import annotations

import msgspec

from fathom.data import load


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fitted `values`, `spreads` of their logarithms, `draws` of the posterior, and `rows` behind them.

    `noise` is the spread of the rows about the fit, in the logarithm, by kind of figure.
    """

    values: dict[str, float]
    spreads: dict[str, float]
    draws: dict[str, list[float]]
    rows: list[str]
    noise: dict[str, float]


def calibration_of(package: str) -> Calibration:
    """Return the content of `constants.yaml` of a package."""
    return msgspec.convert(load(package, "constants"), Calibration)
