"""Settings of a proof."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fathom.errors import BadInputError
from fathom.referee.gate import Turn
from fathom.referee.launching import Launcher
from fathom.timing import MARGIN

if TYPE_CHECKING:
    from fathom.referee.race import Race

T = TypeVar("T")
_CHOICES = (
    ("latency", ("removed", "included")),
    ("cache", ("cold", "warm")),
    ("fresh", ("spawn", "fork")),
)


def quiet(_: str) -> None:
    """Print nothing: the default for progress and messages."""


def chosen_from(kind: type[T], options: Mapping[str, Any]) -> T:
    """Make the dataclass `kind` from those of `options` that are its fields."""
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: options[name] for name in names if name in options})


@dataclass(frozen=True)
class Settings:
    """How a proof is run.

    - `margin`: ratios within this share of 1 count as the same.
    - `budget_s`: seconds of timing at most, but at least six blocks per side. `block_s`: seconds of samples
      in one process. `patience_s`: seconds for one answer, compilation included.
    - `latency`: whether launch latency counts. `cache`: the condition that decides.
    - `fresh`: start a new interpreter for each block, or fork one that has imported torch.
    - `bare`: also run the candidate in a process without any trace of the referee.
    - `seed`: of the inputs; by default different each time.
    - `flops`, `bytes`, `unit`: the work of a call, and the ceiling that bounds its arithmetic.
    - `progress` gets lines that replace each other, `tell` lines that stay, `keep` all blocks with samples.
    - `turn`: use of the machine beside other proofs. `launcher`: starts processes, by default as `fresh`
      says.
    """

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
            raise BadInputError(f"The margin is {self.margin:g}; give one between 0 and 0.5.")
        if self.budget_s < 0 or self.block_s <= 0 or self.patience_s <= 0:
            raise BadInputError("Seconds must be positive; leave the option out for its default.")
        for name, allowed in _CHOICES:
            if (value := getattr(self, name)) not in allowed:
                raise BadInputError(f"'{value}' is not a value of {name}; give {' or '.join(allowed)}.")

    def decides(self, condition: str) -> bool:
        """Return whether this state of the cache decides the verdict; a CPU has only the state ""."""
        return condition in (self.cache, "")

    def seeds(self) -> Iterator[int]:
        """Yield seeds that no candidate can predict."""
        source = random.SystemRandom() if self.seed is None else random.Random(self.seed)
        while True:
            yield source.randrange(1, 2**31)
