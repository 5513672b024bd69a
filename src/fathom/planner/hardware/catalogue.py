"""Systems by name: the chip's datasheet, and its fabric as a tree of domains."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import msgspec

from fathom.data import load
from fathom.errors import BadInputError, nearest
from fathom.machine import datasheet
from fathom.planner.quantity import ASSUMED, DATASHEET, MEASURED, Quantity, spread

_SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_SCALES |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTP", 1)}
SMALLEST, LARGEST = 1e-15, 1e30  # of figures that users give: any other overflows somewhere
_COUNTS = ("host_gpus", "cores", "oversubscription")
_MEANS = ("price", "power", "host_power")
_OF_NETWORK = ("network", "oversubscription")
_OF_HOST = ("host_gpus", "cores", "storage", "storage.random")
RATES = ("FLOP/s", "B/s", "B", "Hz")  # units of figures that divide
_EXAMPLES = {
    "FLOP/s": "989 TFLOP/s",
    "B/s": "4.2 TB/s",
    "B": "76 GB",
    "Hz": "1.7 GHz",
    "W": "700 W",
    "s": "4 us",
}
_WIDER = {"bf16": ("fp4", 1 / 4), "fp16": ("fp4", 1 / 4), "fp8": ("fp4", 1 / 2)}
_STORAGE = (
    "Llama 3's cluster sustains 0.7 GB/s for each of 3,000 hosts, with peaks of 2.3 (arXiv:2407.21783); "
    "measure the machine or give --storage"
)
_JITTER = "spread of a rank's step time when ranks do equal work; no measurement given"


@dataclass(frozen=True)
class Domain:
    """GPUs that one kind of link joins: a node, a rack, a cluster.

    `gpus` is the number inside, or 0 for any number. `bandwidth` is per GPU and direction, `latency` per
    message. `oversubscription` divides the bandwidth of traffic that crosses the domain.
    """

    name: str
    gpus: int
    bandwidth: Quantity
    latency: Quantity
    oversubscription: float = 1.0

    @property
    def rate(self) -> float:
        """Return the bandwidth in B/s that traffic across the whole domain gets."""
        return self.bandwidth.value / self.oversubscription


@dataclass(frozen=True)
class Hardware:
    """One kind of accelerator and the fabric that joins many of them.

    `figures` are keyed like datasheets: `matmul.bf16`, `vector.fp32`, `hbm`, `memory`, `power`, `host_power`
    (of the host, per GPU), `launch`, `jitter` (relative standard deviation of a rank's step), `host_gpus`
    and `cores` of a host, `storage` (bandwidth of a host while all of them read or write) and, if known,
    `price` (per GPU hour). `fabric` is innermost first. `system` is the
    catalogue's name, whose calibration applies to a measured machine too.
    """

    name: str
    chip: str
    figures: dict[str, Quantity] = field(default_factory=dict)
    fabric: tuple[Domain, ...] = ()
    announced: bool = False
    system: str = ""
    sheet: dict[str, Quantity] = field(default_factory=dict)  # the datasheet, which measurements replace
    mixed: tuple[str, ...] = ()  # systems of a mixture

    @property
    def is_measured(self) -> bool:
        """Return whether a figure of the accelerator was measured."""
        return any(q.provenance == MEASURED for key, q in self.figures.items() if key not in _OF_HOST)

    def published(self, key: str) -> float:
        """Return a figure of the datasheet; the measured one if there is none."""
        return self.sheet.get(key, self[key]).value

    def __getitem__(self, key: str) -> Quantity:
        if key not in self.figures:
            raise BadInputError(
                f"{self.name} has no value for {key}; give one as {key}=VALUE, "
                f"or choose from {', '.join(sorted(self.figures))}."
            )
        return self.figures[key]

    def matmul(self, dtype: str) -> Quantity:
        """Return the peak of matrix products; raises BadInputError if the chip cannot compute in `dtype`."""
        known = sorted(key.split(".")[1] for key in self.figures if key.startswith("matmul."))
        if f"matmul.{dtype}" not in self.figures:
            raise BadInputError(
                f"{self.name} has no matrix rate for {dtype}; choose one of {', '.join(known)}."
            )
        return self.figures[f"matmul.{dtype}"]

    def domain(self, gpus: int) -> Domain:
        """Return the innermost domain that holds `gpus` neighbouring GPUs."""
        return next((d for d in self.fabric if d.gpus == 0 or d.gpus >= gpus), self.fabric[-1])

    def having(self, **figures: Quantity) -> Hardware:
        """Return this hardware with figures replaced or added."""
        return replace(self, figures=self.figures | figures)

    def assuming(self, changes: Sequence[str]) -> Hardware:
        """Return this hardware with figures that a user gives, like `hbm=4.2 TB/s` or `price=2.5`.

        `network` and `oversubscription` are those of the outermost domain. Raises BadInputError if a figure
        is unknown, or is 0 where that is impossible.
        """
        parsed = dict(_assumption(change) for change in changes)
        own = self.figures | self._outermost()
        known = {"price", *own, *_every_figure()}
        for key, given in parsed.items():
            if key not in known:
                raise BadInputError(f"{key!r} is not a figure of a system; {nearest(key, sorted(known))}.")
            if not given.value and (own.get(key, given).unit in RATES or key in _COUNTS):
                raise BadInputError(f"{key} is 0, which no system has; give a number above 0.")
            unit = own[key].unit if key in own else ""
            if unit in _EXAMPLES and given.unit != unit:
                raise BadInputError(f"{key} is a figure in {unit}; write one like {key}={_EXAMPLES[unit]}.")
        figures = {key: given for key, given in parsed.items() if key not in _OF_NETWORK}
        return replace(self, figures=self.figures | figures, fabric=self._rewired(parsed))

    def _outermost(self) -> dict[str, Quantity]:
        if not self.fabric:
            return {}
        outer = self.fabric[-1]
        crossing = Quantity(outer.oversubscription, "", ASSUMED, "of the outermost domain")
        return dict(zip(_OF_NETWORK, (outer.bandwidth, crossing), strict=True))

    def _rewired(self, given: dict[str, Quantity]) -> tuple[Domain, ...]:
        """Return the fabric with the links that a user gives."""
        links = {id(self.figures[key]): quantity for key, quantity in given.items() if key in self.figures}
        fabric = [replace(d, bandwidth=links.get(id(d.bandwidth), d.bandwidth)) for d in self.fabric]
        if fabric and "network" in given:
            fabric[-1] = replace(fabric[-1], bandwidth=given["network"])
        if fabric and "oversubscription" in given:
            fabric[-1] = replace(fabric[-1], oversubscription=given["oversubscription"].value)
        return tuple(fabric)


@cache
def _every_figure() -> frozenset[str]:
    """Return the keys of the figures that some known system has."""
    return frozenset(key for name in systems() for key in hardware(name).figures)


def known_systems() -> list[str]:
    """Return the names of all systems with a datasheet."""
    return list(systems())


def hardware(name: str) -> Hardware:
    """Return the system called `name`, or a mixture like `h100:24+a100:8`. Raises BadInputError."""
    if "+" in name:
        return mixture([_share(part) for part in name.split("+")])
    key = name.lower().replace("_", "-").replace(" ", "-")
    row = systems().get(_aliases().get(key, key))
    if row is None:
        near = difflib.get_close_matches(key, list(_aliases()), n=1, cutoff=0.3)
        hint = f"the nearest is {_aliases()[near[0]]}" if near else f"choose from {', '.join(systems())}"
        raise BadInputError(f"{name!r} is not a known system or a machine file; {hint}.")
    return _built(row)


def _share(part: str) -> tuple[Hardware, float]:
    name, colon, count = part.strip().partition(":")
    if colon and not (count.isdecimal() and int(count)):
        raise BadInputError(f"{part!r} is not a part of a mixture; write GPUs of each, like h100:24+a100:8.")
    return hardware(name), float(count or 1)


def mixture(parts: Sequence[tuple[Hardware, float]]) -> Hardware:
    """Return hardware with GPUs of several systems, in proportions, that share each step equally.

    All wait for the slowest, so each rate is the least of any, and so are the memory and the network. Price
    and power are the mean.
    """
    slowest = min((system for system, _ in parts), key=lambda system: system["matmul.bf16"].value)
    shared = set.intersection(*(set(system.figures) for system, _ in parts))
    figures = {key: _mixed(key, parts) for key in shared}
    outer = min((system.fabric[-1] for system, _ in parts), key=lambda domain: domain.rate)
    inner = tuple(
        replace(min((system.domain(size) for system, _ in parts), key=lambda domain: domain.rate), gpus=size)
        for size in sorted({domain.gpus for system, _ in parts for domain in system.fabric[:-1]})
    )
    names = tuple(system.name for system, _ in parts)
    announced = any(system.announced for system, _ in parts)
    return replace(
        slowest,
        name="+".join(names),
        figures=figures,
        fabric=(*inner, outer),
        announced=announced,
        mixed=names,
    )


def _mixed(key: str, parts: Sequence[tuple[Hardware, float]]) -> Quantity:
    """Return a figure of a mixture."""
    if key not in _MEANS:
        worst = max if key in ("launch", "jitter") else min
        return worst((system[key] for system, _ in parts), key=lambda quantity: quantity.value)
    total = sum(share for _, share in parts)
    low, value, high = (
        sum(share * end(system[key]) for system, share in parts) / total
        for end in (lambda q: q.interval[0], lambda q: q.value, lambda q: q.interval[1])
    )
    return replace(parts[0][0][key], value=value, low=low, high=high)


class Level(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A domain of a system's fabric in systems.yaml, which explains the fields."""

    name: str
    gpus: int
    bandwidth: str
    latency: str
    source: str = ""
    oversubscription: float = 1.0


class Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The host of a system: its GPUs and its cores."""

    gpus: int
    cores: int
    source: str


class System(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of systems.yaml, which explains the fields."""

    name: str
    chip: str
    fabric: list[Level]
    aliases: tuple[str, ...] = ()
    published: dict[str, str] = {}
    published_source: str = ""
    host_power: str = ""
    host_source: str = ""
    host: Host | None = None
    like: str = ""


@cache
def systems() -> dict[str, System]:
    """Return the rows of `systems.yaml` by name."""
    return {row.name: row for row in msgspec.convert(load(__package__, "systems"), list[System])}


@cache
def _aliases() -> dict[str, str]:
    return {alias: name for name, row in systems().items() for alias in (name, *row.aliases)}


def _built(row: System) -> Hardware:
    sheet = datasheet.find({"name": row.chip})
    assert sheet is not None, row.chip
    figures = {key: Quantity(f.value, f.unit, DATASHEET, f.source) for key, f in sheet.figures.items()}
    figures |= {
        key: _quantity(words, DATASHEET, row.published_source) for key, words in row.published.items()
    }
    if row.host_power:
        figures["host_power"] = _quantity(row.host_power, DATASHEET, row.host_source)
    if row.host:
        figures |= {
            "host_gpus": Quantity(row.host.gpus, "", DATASHEET, row.host.source),
            "cores": Quantity(row.host.cores, "", DATASHEET, row.host.source),
        }
    figures |= _assumed(figures)
    domains = tuple(_domain(level, figures) for level in row.fabric)
    return Hardware(row.name, sheet.name, figures, domains, sheet.announced, row.like or row.name)


def _assumed(figures: dict[str, Quantity]) -> dict[str, Quantity]:
    """Return figures that the maker does not publish, by the rule that fits its other chips."""
    known = {"launch": spread(4e-6, 0.4, "s", ASSUMED, "launch of a small kernel; measure the machine")}
    known["jitter"] = Quantity(0.01, "", ASSUMED, _JITTER, 0.002, 0.03)
    known |= assumed_host()
    if "power" in figures:
        known["host_power"] = spread(
            0.6 * figures["power"].value, 0.4, "W", ASSUMED, "0.6 × the GPU's, as in DGX systems"
        )
    for dtype, (other, factor) in _WIDER.items():
        if f"matmul.{other}" in figures and f"matmul.{dtype}" not in figures:
            source = f"{factor:g} × the published {other} rate, as on the maker's other chips"
            rate = figures[f"matmul.{other}"].value * factor
            known[f"matmul.{dtype}"] = spread(rate, 0.1, "FLOP/s", ASSUMED, source)
    return {key: q for key, q in known.items() if key not in figures}


def assumed_host(gpus: int = 8) -> dict[str, Quantity]:
    """Return the figures of a host that nobody published or measured."""
    return {
        "host_gpus": Quantity(gpus, "", ASSUMED, "GPUs of a usual server"),
        "cores": spread(96, 0.3, "", ASSUMED, "cores of a usual server; measure the machine"),
        "storage": Quantity(1e9, "B/s", ASSUMED, _STORAGE, 0.5e9, 4e9),
    }


def _domain(level: Level, figures: dict[str, Quantity]) -> Domain:
    bandwidth = figures.get(level.bandwidth) or _quantity(level.bandwidth, DATASHEET, level.source)
    latency = _quantity(level.latency, ASSUMED, "typical of this link; measure the machine")
    slack = 0.5 * latency.value
    latency = replace(latency, low=latency.value - slack, high=latency.value + slack)
    return Domain(level.name, level.gpus, bandwidth, latency, level.oversubscription)


def quantity(words: str, unit: str | None = None) -> Quantity:
    """Return a quantity as a user writes it, like `100 GB/s`, in `unit` if given. Raises BadInputError."""
    given = _quantity(words, ASSUMED, "given by the user")
    if unit is not None and given.unit != unit:
        raise BadInputError(f"{words!r} is not in {unit}; write one like {_EXAMPLES[unit]}.")
    if given.value and not SMALLEST <= given.value <= LARGEST:
        raise BadInputError(f"{words!r} is not a plausible value; write one like 4.8 TB/s.")
    return given


def _quantity(words: str, provenance: str, source: str) -> Quantity:
    parsed = re.fullmatch(
        r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([KMGTP]i(?=B)|[kMGTPmun]?)(FLOP/s|B/s|B|Hz|W|s)?",
        words.strip(),
    )
    if parsed is None:
        raise BadInputError(f"{words!r} is not a quantity; write a number with a unit, like 4.8 TB/s.")
    value = float(parsed[1]) * _SCALES[parsed[2]]
    return Quantity(value, parsed[3] or "", provenance, source)


def _assumption(change: str) -> tuple[str, Quantity]:
    key, equals, words = change.partition("=")
    if not equals:
        raise BadInputError(f"{change!r} is not an assumption; write FIGURE=VALUE, like hbm=4.2 TB/s.")
    return key.strip(), quantity(words)
