"""Speculative decoding: the share of drafts accepted, and the time of decodes with and without drafts.

A decode that verifies drafts generates one token and those accepted. Drafting pays if this decode takes less
time than the plain decodes of these tokens. Plain decodes are those of the same recording without drafts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from fathom.analysis import Abstained

KIND = "serving-low-acceptance"
FEWEST = 8  # decodes with drafts, and without
COVERED = 0.5  # of the time of decodes with drafts, for which a plain decode of as many requests is known


@dataclass(frozen=True)
class Drafts:
    """The drafts of a recording."""

    drafted: int  # tokens
    accepted: int
    slowdown: float | None  # time of decodes with drafts over that of plain ones; None: none to compare with
    spare_ms: np.ndarray  # of each iteration: its time less that of a plain decode of its requests

    @property
    def rejected_share(self) -> float:
        """The share of drafted tokens that were rejected; 0 without drafts."""
        return 1.0 - self.accepted / self.drafted if self.drafted else 0.0


def drafts_of(rows: pl.DataFrame, took: np.ndarray) -> Drafts:
    """Return the drafts in these iterations (`iterations_of`), which took so many milliseconds."""
    drafted, made = (rows[name].to_numpy().astype(float) for name in ("drafted", "made"))
    decodes, n = rows["prompt"].to_numpy() == 0, rows["decode"].to_numpy()
    counts = int(drafted.sum()), int(np.where(drafted > 0, np.maximum(made - n, 0), 0.0).sum())
    plain, tried = decodes & (drafted == 0), decodes & (drafted > 0)
    none = np.zeros(rows.height)
    if min(plain.sum(), tried.sum()) < FEWEST:
        return Drafts(*counts, None, none)
    sizes = np.unique(n[plain])
    usual = np.interp(n, sizes, [np.median(took[plain & (n == size)]) for size in sizes])
    known = tried & (n >= sizes[0]) & (n <= sizes[-1])
    if took[known].sum() < COVERED * took[tried].sum():
        return Drafts(*counts, None, none)
    without = float((made[known] / n[known] * usual[known]).sum())
    return Drafts(*counts, float(took[known].sum()) / without, np.where(known, took - usual, 0.0))


def explained(open_rules: list[Abstained], accepted: float | None) -> list[Abstained]:
    """Return the open rules; that on drafts with the cost at which they begin to pay, if the share is known.

    With a share `a` of k drafted tokens accepted, a decode makes 1 + a·k tokens in the time of 1 + c·k plain
    ones (Leviathan et al., 2023): drafting pays if c < a.
    """
    if accepted is None:
        return open_rules
    share = f"{100 * accepted:.0f} %"
    why = (
        f"{share} of drafted tokens are accepted, so drafts pay only if drafting and verifying a token takes "
        f"less than {share} of a decode without drafts, which was not seen"
    )
    return [Abstained(KIND, why) if row.what == KIND else row for row in open_rules]
