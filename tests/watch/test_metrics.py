"""Prometheus' own parser reads the metrics, and the dashboard asks only for metrics that exist."""

from __future__ import annotations

import json
import re
import socket
import urllib.request

import pytest

from fathom.analysis.live import Live
from fathom.errors import BadInputError
from fathom.report import LiveCollector
from fathom.report.live.metrics import rows
from fathom.watch import served
from fathom.watch.serving import address
from tests.support.live_views import NOW, full_view
from tests.support.paths import ROOT

prometheus = pytest.importorskip("prometheus_client")
DASHBOARD = ROOT / "examples" / "grafana" / "fathom.json"


def parsed(text: str) -> dict:
    from prometheus_client.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def exposed(live: Live | None) -> dict:
    registry = prometheus.CollectorRegistry(auto_describe=False)
    registry.register(LiveCollector(lambda: live))
    return parsed(prometheus.generate_latest(registry).decode())


def test_prometheus_reads_every_metric_in_base_units():
    samples = exposed(full_view(ranks=2))
    assert samples["fathom_step_seconds", ("rank", "0")] == pytest.approx(0.0241)
    assert samples["fathom_steps_total", ("rank", "1")] == 52_800
    gpu = ("gpu", "0"), ("name", "NVIDIA H200")
    assert samples[("fathom_gpu_sm_clock_hertz", *gpu)] == pytest.approx(1.98e9)
    assert samples[("fathom_gpu_busy_ratio", *gpu)] == pytest.approx(0.97)
    assert samples[("fathom_gpu_throttled", *gpu)] == 1.0
    assert samples["fathom_wall_seconds", ("entry", "productive"), ("rank", "0")] == 650.0
    title = ("title", "The model runs without torch.compile")
    assert samples["fathom_finding_gain_seconds", ("id", "framework-not-compiled"), title] == 0.003
    assert samples[("fathom_alert_active",)] == 1.0


def test_what_is_unknown_has_no_sample():
    names = {key[0] for key in exposed(Live("a.fathom", [], NOW, NOW))}
    known = {"fathom_recording_bytes", "fathom_alerts_total", "fathom_alert_active"}
    assert names == known | {"fathom_program_running", "fathom_recording_info"}
    assert exposed(None) == {}


def test_names_follow_the_conventions_and_fields_exist():
    for metrics in rows().values():
        for row in metrics:
            assert re.fullmatch(r"fathom(_[a-z0-9]+)+", row.name) and row.help.endswith("."), row
            assert row.kind in ("gauge", "counter") and not row.name.endswith("_total"), row
    live = full_view()
    subjects = {"program": live, "rank": live.ranks[0], "gpu": live.devices[0], "host": live.devices[1]}
    assert {of: [row.value(subjects[of]) for row in metrics] for of, metrics in rows().items()}


def test_hostile_names_stay_labels():
    live = full_view()
    live.command = ['a"b\nc\\', "\x1b[31m"]
    [key] = [key for key in exposed(live) if key[0] == "fathom_recording_info"]
    command = dict(key[1:])["command"]
    assert command.startswith('a"b') and "\x1b" not in command


def test_the_dashboard_asks_only_for_metrics_that_exist():
    text = DASHBOARD.read_text()
    dashboard = json.loads(text)
    asked = set(re.findall(r"\bfathom_[a-z0-9_]+", text))
    assert asked - {key[0] for key in exposed(full_view())} <= {"fathom_host_power_watts"}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"]) > 15
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


def test_metrics_are_served_to_this_machine_alone():
    live = full_view()
    with served("0", lambda: live) as url:
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert parsed(answer.read().decode()) == exposed(live)
    with served(None, lambda: None) as url:
        assert url is None


def test_a_port_in_use_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BadInputError, match="choose another port"), served(str(port), lambda: None):
            pass


@pytest.mark.parametrize("text", ["", "http", "70000", "-1", "host.example:9464", "127.0.0.1:", "1:2:3"])
def test_addresses_that_cannot_be_served_are_refused(text):
    with pytest.raises(BadInputError, match="write PORT or ADDRESS:PORT"):
        address(text)


def test_addresses_may_name_another_interface():
    assert address("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert address("[::1]:9464") == ("::1", 9464) and address("localhost:1") == ("localhost", 1)
