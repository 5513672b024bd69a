"""A pair: one computation in two forms, plain and tuned; and the settings of its proof."""

from __future__ import annotations

import random
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fathom.errors import BadInputError
from fathom.referee import address
from fathom.referee.gate import Turn
from fathom.referee.launching import Launcher
from fathom.referee.verdict import codes
from fathom.timing import MARGIN, require_margin

if TYPE_CHECKING:
    from fathom.referee.race import Race

Where = str | Callable[..., Any]
Command = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two functions, or two whole commands, each a tuple of words.

    Functions are given as `module:function`, `file.py:function`, or as objects that can be imported.

    - `inputs(seed)` returns the arguments of a call: a tuple, a dict of keywords, both, or a single value.
      The same seed must give the same arguments.
    - `reference` computes the same as precisely as possible; by default it is the plain form in float64.
    - `variants(seed)` returns further inputs by name, for example odd shapes; compared, not timed.
    - `work(*inputs)` returns `{"flops", "bytes", "unit"}` of a call: FLOPs and bytes that it needs at least,
      and the ceiling that bounds its arithmetic (`matmul.bf16`).
    - `precision`: the precision that the tuned form computes in, if lower than its results' dtype (`tf32`).
    - `reduction`: the number of terms summed for one element of the result.
    - `allow`: codes of reasons that do not refuse the tuned form.
    - `findings`: kinds of findings that appear on the plain form and not on the tuned form.
    - `metrics`: for commands, the JSON or npz file that both write, with arrays by name, such as `loss`,
      weights or `tokens`. Without it the tuned form is refused, because it might compute nothing, unless
      `allow` has `nothing-compared`.
    - `agree`: the relative difference of these values that is allowed beyond scatter and rounding.
    - `ranks`: the number of ranks that run a form together, which then returns the step that is timed.

    Commands use only `metrics`, `agree`, `allow`, `name` and `findings`.
    """

    plain: Where | Command
    tuned: Where | Command
    inputs: Where | None = None
    reference: Where | None = None
    variants: Where | None = None
    work: Where | None = None
    name: str = ""
    precision: str | None = None
    reduction: int | None = None
    allow: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    metrics: Path | None = None
    agree: float | None = None
    ranks: int = 0

    @property
    def commands(self) -> tuple[Command, Command] | None:
        """Both forms if they are commands, else None. Raises BadInputError if only one is."""
        if isinstance(self.plain, tuple) and isinstance(self.tuned, tuple):
            return self.plain, self.tuned
        if isinstance(self.plain, tuple) or isinstance(self.tuned, tuple):
            raise BadInputError(
                "One form of the pair is a command, the other a function; give two of the same kind."
            )
        return None

    def with_inputs(self) -> Pair:
        """Return the pair, with `inputs` from the plain form's module by default. Raises BadInputError."""
        if self.inputs is not None or isinstance(self.plain, tuple):
            return self
        module = address.split(str(_addressed(self.plain)))[0]
        return replace(self, inputs=f"{module}:inputs")

    def addressed(self) -> Pair:
        """Return the pair with every function as an absolute address. Raises BadInputError."""
        unknown = set(self.allow) - codes().keys()
        if unknown:
            raise BadInputError(
                f"'{min(unknown)}' is not the code of a refusal; the codes are {', '.join(codes())}."
            )
        if self.commands:
            return self
        if self.inputs is None:
            raise BadInputError("The pair has no inputs; give the function that makes them.")
        places = ("plain", "tuned", "inputs", "reference", "variants", "work")
        addresses: dict[str, Any] = {name: _addressed(getattr(self, name)) for name in places}
        return replace(self, **addresses)


def command_of(text: str) -> Command:
    """Split a command line into words as a shell does. Raises BadInputError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise BadInputError(f"The command {text!r} cannot be read: {error}.") from None
    if not words:
        example = "fathom prove --command 'python a.py' 'python b.py'"
        raise BadInputError(f"The command is empty; give two: {example}.")
    return tuple(words)


def place_of(where: Where | None) -> str | None:
    """Return the address of a function of a pair with addresses."""
    return None if where is None else str(where)


def _addressed(where: Where | None) -> str | None:
    if where is None:
        return None
    return address.absolute(where if isinstance(where, str) else address.of(where))


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
    - `sanitize`: also run it under compute-sanitizer, which finds invalid accesses and races.
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
    sanitize: bool = False
    flops: float | None = None
    bytes: float | None = None
    unit: str | None = None
    progress: Callable[[str], None] = quiet
    tell: Callable[[str], None] = quiet
    turn: Turn = field(default_factory=Turn)
    launcher: Launcher | None = None
    keep: Callable[[Race], None] = field(default=lambda _: None)

    def __post_init__(self) -> None:
        require_margin(self.margin)
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
