"""A program that `fathom run` records, followed through the files that the recording writes anyway."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from copy import copy
from operator import attrgetter
from pathlib import Path
from typing import Any

from fathom.analysis.live import Alert, Insight, Live, RankView, Slowdown
from fathom.atomic import write_private
from fathom.errors import BadInputError
from fathom.machine.model import Machine
from fathom.regular import read_json
from fathom.units import NS_PER_S
from fathom.visible import visible_line
from fathom.watch.devices import Devices
from fathom.watch.folders import recordings
from fathom.watch.insights import PASSED, Examiner
from fathom.watch.ranks import QUIET, Crossing, Rank
from fathom.watch.rule import Rule

MOST_ALERTS = 8  # each costs the program a few profiled steps
AFTER_BURST_NS = 3 * NS_PER_S  # of clean steps after a burst, before its examination
PATIENCE_NS = 300 * NS_PER_S  # for the timeline that an alert requests
FAILED = "examining the recording failed"


class Watch:
    """Follows the recording in `folder`. Call `poll` regularly, and `view` for what is known.

    `rule` is the alert rule. `examine`: whether to look for findings, in a child process of low priority.
    Raises BadInputError if `folder` contains no running recording.
    """

    def __init__(
        self,
        folder: Path,
        rule: Rule | None = None,
        *,
        examine: bool = True,
        clock: Callable[[], int] = time.time_ns,
        examiner: Examiner | None = None,
    ) -> None:
        self.folder, self.rule, self.clock = folder, rule, clock
        self._parts = recordings(folder) or [folder]  # of a job; the first one leads
        self.raw = self._parts[0] / "raw"
        self._launch = _json(self.raw / "launch.json")
        self._plan = _json(self.raw / "plan.json")
        if not self._launch:
            raise BadInputError(
                f"{folder} is not a running recording; start one with `fathom run -- COMMAND`."
            )
        self._start_ns = int(self._launch.get("start_ns") or clock())
        self._devices = Devices(self.raw / "telemetry.jsonl", self._launch.get("machine") or Machine())
        self._ranks: dict[Path, Rank] = {}
        self._examiner = (examiner or Examiner()) if examine else None
        self._examined_bursts = 0
        self._examining: Alert | None = None
        self._insight: Insight | None = None
        self._alerts: list[Alert] = []
        self._requested: set[int] = set()  # alerts for which a timeline was requested
        self._end: dict[str, Any] = {}

    def poll(self) -> None:
        """Read what was written since the last call, and act on it."""
        for file in [file for part in self._parts for file in (part / "raw").glob("proc-*.jsonl")]:
            self._ranks.setdefault(file, Rank(file, self._start_ns, self.rule)).poll()
        self._devices.poll()
        self._look_for_parts()
        self._end = self._end or _json(self.raw / "end.json") or self._finished()
        self._take_insight()
        if self.rule:
            self._mind_rule()
        self._ask()

    def _look_for_parts(self) -> None:
        if self._parts != [self.folder]:
            self._parts += [part for part in recordings(self.folder) if part not in self._parts]

    def _finished(self) -> dict[str, Any]:
        """Return how the program ended, from the manifest of the finished sounding; {} if it runs."""
        return {} if self.raw.is_dir() else _json(self.raw.parent / "manifest.json") or {"ended": "unknown"}

    @property
    def over(self) -> bool:
        """Whether the program has ended and its recording is finished, or stays raw."""
        return bool(self._end) or not self.raw.is_dir()

    def request(self) -> None:
        """Request a timeline of the next steps."""
        self._trigger("timeline")

    def close(self) -> None:
        """End a running examination."""
        if self._examiner:
            self._examiner.close()

    def _trigger(self, phase: str) -> None:
        with contextlib.suppress(OSError):  # the program has just ended
            write_private(self.raw / "trigger", phase)

    # examinations

    def _take_insight(self) -> None:
        if not self._examiner or not self._examiner.busy:
            return
        result = self._examiner.result(self.clock() / NS_PER_S)
        if self._examiner.busy:
            return
        alert, self._examining = self._examining, None
        if alert is not None:
            failed = Slowdown(*_times(alert), why_not=FAILED)
            alert.change = change = result if isinstance(result, Slowdown) else failed
            alert.state = "explained" if change.entries or change.findings else "unexplained"
        elif isinstance(result, Insight):
            self._insight = result

    def _ask(self) -> None:
        """Examine the recording for a waiting alert, or else new bursts."""
        if not self._examiner or self._examiner.busy or self.over:
            return
        now = self.clock()
        waiting = next((alert for alert in self._alerts if alert.state == "recording"), None)
        bursts = sum(len(rank.bursts) for rank in self._ranks.values())
        new = bursts > self._examined_bursts
        if waiting is not None:
            self._ask_about(waiting, now)
        elif new and self._calm(now):
            self._examined_bursts = bursts
            self._examiner.examine(self.raw.parent, now / NS_PER_S, self._usual_until())

    def _ask_about(self, alert: Alert, now: int) -> None:
        bursts = [ns for rank in self._ranks.values() for ns in rank.bursts.values() if ns > alert.at_ns]
        late = now - alert.at_ns > PATIENCE_NS
        surface = self._plan.get("depth") == "surface"
        if (bursts and self._calm(now)) or late or surface:
            alert.state, self._examining = "examining", alert
            self._examined_bursts = sum(len(rank.bursts) for rank in self._ranks.values())
            assert self._examiner is not None
            self._examiner.compare(self.raw.parent, now / NS_PER_S, self._onset(alert))

    def _onset(self, alert: Alert) -> int:
        """Return the approximate time at which the steps became slow."""
        steps = self.rule.steps if self.rule else 0
        return alert.at_ns - int(steps * alert.step_ms * 1e6)

    def _usual_until(self) -> int:
        """Return the time until which steps resemble the baseline; 0: until now."""
        slow = next((alert for alert in self._alerts if not alert.over), None)
        return self._onset(slow) if slow else 0

    def _calm(self, now: int) -> bool:
        """Return whether bursts are over and clean steps follow."""
        ranks = [rank for rank in self._ranks.values() if rank.bursts]
        last = max((ns for rank in ranks for ns in rank.bursts.values()), default=0)
        return all(rank.phase in QUIET for rank in ranks) and now - last >= AFTER_BURST_NS

    # alerts

    def _mind_rule(self) -> None:
        """Take over alerts, and request a timeline for a new one that is not over."""
        for rank in self._ranks.values():
            for crossing in rank.crossings:
                self._cross(rank.head.get("rank") or 0, crossing)
            rank.crossings.clear()
        newest = self._alerts[-1] if self._alerts else None
        if newest and not newest.over and newest.at_ns not in self._requested:
            self._requested.add(newest.at_ns)
            if self._plan.get("depth") != "surface":
                self._trigger("slow")

    def _cross(self, rank: int, crossing: Crossing) -> None:
        """Begin or end an alert. There is one for all ranks, because they wait for each other.

        While it lasts, another begins if steps become slower by the rule's percentage again.
        """
        active = [alert for alert in self._alerts if not alert.over]
        if crossing.began:
            worse = not active or crossing.step_ms > self._slower * active[-1].step_ms
            if worse and len(self._alerts) < MOST_ALERTS:
                times = crossing.baseline_ms, crossing.step_ms
                self._alerts.append(Alert(crossing.ns, rank, crossing.step, *times))
            return
        for alert in active:
            if alert.rank != rank:
                continue
            alert.over = True
            if alert.at_ns not in self._requested:
                alert.state, alert.change = "unexplained", Slowdown(*_times(alert), why_not=PASSED)

    @property
    def _slower(self) -> float:
        return 1 + (self.rule.percent if self.rule else 0.0) / 100

    # the view

    def view(self) -> Live:
        """Return the present state."""
        now = self.clock()
        ranks = sorted(
            (rank.view(now) for rank in self._ranks.values() if rank.has_steps), key=attrgetter("rank", "pid")
        )
        view = Live(
            str(self.folder),
            [visible_line(str(word)) for word in self._launch.get("command") or []],
            now,
            self._start_ns,
            state=self._state(ranks),
            ended=str(self._end.get("ended") or ""),
            exit_status=self._end.get("exit_status"),
            depth=str(self._plan.get("depth") or ""),
            machine=_machine(self._launch.get("machine") or Machine()),
            ranks=ranks,
            devices=self._devices.view(),
            insight=self._insight,
            alerts=[copy(alert) for alert in self._alerts],  # as they are now: lines tell what changed
            rule=str(self.rule or ""),
            examining=bool(self._examiner and self._examiner.busy),
            log_bytes=self._log_bytes(),
            sounding=not self.raw.is_dir() and (self.raw.parent / "manifest.json").exists(),
        )
        self._derive(view)
        return view

    def _state(self, ranks: list[RankView]) -> str:
        if self.over:
            return "ended"
        if not ranks:
            return "starting"
        return "stalled" if any(rank.stalled for rank in ranks) else "running"

    def _derive(self, view: Live) -> None:
        insight, lead = self._insight, view.lead
        if insight is None or not insight.step_ms:
            return
        if insight.mfu is not None and lead and lead.clean_ms:
            view.mfu = insight.mfu * insight.step_ms / lead.clean_ms
        if insight.communication_ms is not None:
            view.communication_share = insight.communication_ms / insight.step_ms

    def _log_bytes(self) -> int:
        with contextlib.suppress(OSError):
            return sum(file.stat().st_size for file in self.raw.iterdir())
        return 0


def _times(alert: Alert) -> tuple[float, float]:
    return alert.baseline_ms, alert.step_ms


def _json(file: Path) -> dict[str, Any]:
    try:
        content = read_json(file)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _machine(machine: Machine) -> str:
    """Return the names of the GPUs, or else of the processor, without the host's name."""
    names = [str(gpu.get("name")) for gpu in machine.get("gpus") or []]
    cpu = str(((machine.get("host") or {}).get("cpu") or {}).get("model") or "")
    return f"{len(names)} × {names[0]}" if len(names) > 1 else names[0] if names else cpu
