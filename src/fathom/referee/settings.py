"""How a proof is run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from fathom.errors import BadInputError
from fathom.referee.launching import Launcher
from fathom.referee.samples import Race
from fathom.referee.turn import Turn
from fathom.timing import MARGIN

_CHOICES = (
    ("latency", ("removed", "included")),
    ("cache", ("cold", "warm")),
    ("fresh", ("spawn", "fork")),
)


def quiet(_: str) -> None:
    """Print nothing: the default for progress and messages."""


@dataclass(frozen=True)
class Settings:
    """`margin`: what counts as the same, as a share. `budget_s`: seconds of timing at most, though never
    fewer than six blocks a side. `block_s`: seconds of samples in one process. `latency`: whether the
    device's wait for launches counts. `cache`: which condition decides. `patience_s`: how long one answer
    may take, compilation included. `fresh`: a new interpreter for each block, or a fork of one that has
    imported torch. `seed`: draws the inputs, by default anew each time. `bare`: whether the candidate is
    also called where nothing of the referee is to be seen. `flops`, `bytes`, `unit`: what a call must do.
    `turn`: when it may use the machine beside other proofs, and for how long; `launcher`: what starts the
    processes, by default as `fresh` says. `progress` is given a line that replaces the
    one before it, `tell` one that stays. `keep` is given all blocks, samples and all."""

    margin: float = MARGIN
    budget_s: float = 120.0
    block_s: float = 0.3
    latency: Literal["removed", "included"] = "removed"
    cache: Literal["cold", "warm"] = "cold"
    patience_s: float = 600.0
    seed: int | None = None
    fresh: Literal["spawn", "fork"] = "spawn"
    bare: bool = True
    flops: float | None = None
    bytes: float | None = None
    unit: str | None = None
    progress: Callable[[str], None] = quiet
    tell: Callable[[str], None] = quiet
    turn: Turn = field(default_factory=Turn)
    launcher: Launcher | None = None
    keep: Callable[[Race], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        if not 0 < self.margin < 0.5:
            raise BadInputError(f"A margin of {self.margin:g} means nothing; give one between 0 and 0.5.")
        if self.budget_s < 0 or self.block_s <= 0 or self.patience_s <= 0:
            raise BadInputError("Seconds must be positive; leave the option out for its default.")
        for name, allowed in _CHOICES:
            if getattr(self, name) not in allowed:
                raise BadInputError(f"'{getattr(self, name)}' is no {name}; give {' or '.join(allowed)}.")

    def decides(self, condition: str) -> bool:
        """Whether the verdict is by this condition of the cache; on a processor there is one, ""."""
        return condition in (self.cache, "")

    def seeds(self) -> Iterator[int]:
        """Seeds that no candidate can know beforehand."""
        source = random.SystemRandom() if self.seed is None else random.Random(self.seed)
        while True:
            yield source.randrange(1, 2**31)
