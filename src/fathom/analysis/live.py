"""The result types of `fathom watch`, which `--json` prints: a running program at one moment."""

from __future__ import annotations

import msgspec

from fathom.analysis.compare.results import Cause, Change

HOST = -1  # device of the host's sensors
PROFILED = "profiled"  # entry of the wall time: time that steps took longer while details were recorded


class RankView(msgspec.Struct):
    """One process that runs steps. Times are means over `window_s`; null: unknown."""

    rank: int
    pid: int
    source: str = ""  # source of the steps' marks
    phase: str = ""  # of the open step
    step: int = 0  # number of the open step, from 0
    steps: int = 0  # complete steps since the recording began
    steps_s: float = 0.0  # time of all complete steps
    window_s: float = 0.0  # length of the recent steps below
    step_ms: float | None = None  # recent clean steps; recent steps of any phase if there are none
    profiled: bool = False  # all recent steps were slowed down by recording details
    baseline_ms: float | None = None  # the first clean steps
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    input_share: float | None = None  # of the recent steps that waited for a batch; null without a loader
    input_s: float = 0.0  # waits for batches since the recording began
    since_mark_s: float = 0.0  # time since the last mark
    stalled: bool = False  # since_mark_s is far longer than a step
    samples: int = 0  # since the recording began
    tokens: int = 0
    entries_s: dict[str, float] = {}  # wall time since the start, as in `fathom goodput`
    goodput: float | None = None  # productive share of the wall time
    recent_ms: list[float] = []  # recent steps, oldest first, for a curve
    notes: list[str] = []  # of the probe, newest last
    ended: bool = False

    @property
    def clean_ms(self) -> float | None:
        """The recent step; None while details are recorded, as steps are longer then."""
        return None if self.profiled else self.step_ms


class DeviceView(msgspec.Struct):
    """The newest reading of a GPU's or the host's sensors; null: not offered."""

    device: int  # HOST for the host
    name: str = ""
    power_w: float | None = None
    energy_j: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None
    busy_percent: float | None = None
    memory_bytes: float | None = None
    total_bytes: float | None = None  # memory of the device
    throttle: list[str] | None = None  # reasons; [] if none
    link_rx_bytes_per_s: float | None = None
    link_tx_bytes_per_s: float | None = None


class FoundCause(msgspec.Struct):
    """A finding of the newest examination, shortened."""

    id: str
    title: str
    action: str  # the remedy in one line
    gain_ms: float | None = None
    share: float | None = None  # of the step
    source: str = ""


class Counted(msgspec.Struct):
    """A measure of the kernel family with the most time, from hardware counters."""

    family: str
    name: str  # of a row in analysis/measures/rows, as in `fathom kernel --json`
    title: str
    value: float
    unit: str


class Insight(msgspec.Struct):
    """The result of examining what was recorded until then."""

    at_ns: int
    step_ms: float | None = None  # clean
    headline: str = ""
    action: str = ""
    mfu: float | None = None
    communication_ms: float | None = None  # exposed, per step; null without a timeline
    findings: list[FoundCause] = []
    counters: list[Counted] = []
    abstained: str = ""  # the reason if there is no ledger


class Slowdown(msgspec.Struct):
    """The comparison of the steps since an alert with those before it, as `fathom compare` makes it."""

    before_ms: float
    after_ms: float
    entries: list[Change] = []  # that changed by more than noise, largest change first
    sums_ms: dict[str, float] = {}  # the change of all rows of each entry; they add up to that of the step
    causes: list[Cause] = []
    findings: list[FoundCause] = []  # that are new since the alert, or cost more
    why_not: str = ""  # the reason if the cause is not known


class Alert(msgspec.Struct):
    """The program became slower than its baseline for as long as the rule says."""

    at_ns: int
    rank: int
    step: int
    baseline_ms: float
    step_ms: float
    state: str = "recording"  # recording (a timeline), examining, explained, unexplained
    change: Slowdown | None = None
    over: bool = False  # steps are as fast as before again


class Live(msgspec.Struct):
    """Everything that `fathom watch` knows about a program at `now_ns`."""

    path: str
    command: list[str]
    now_ns: int
    started_ns: int
    state: str = "starting"  # starting, running, stalled, ended
    ended: str = ""  # how the program ended
    exit_status: int | None = None
    depth: str = ""
    machine: str = ""
    ranks: list[RankView] = []
    devices: list[DeviceView] = []
    insight: Insight | None = None
    mfu: float | None = None  # of recent steps: the FLOPs of the newest examination over their time
    communication_share: float | None = None  # exposed, of the step in the newest timeline
    alerts: list[Alert] = []  # newest last
    rule: str = ""  # the alert rule, in words
    examining: bool = False
    log_bytes: int = 0  # size of the raw records
    sounding: bool = False  # the recording is finished: `fathom report` reads it

    @property
    def lead(self) -> RankView | None:
        """The rank with the longest recent steps, which sets the pace of the others."""
        timed = [rank for rank in self.ranks if rank.step_ms is not None]
        return max(timed, key=lambda rank: rank.step_ms or 0.0, default=None) or next(iter(self.ranks), None)
