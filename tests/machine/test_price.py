"""Money: what a step costs, what a finding saves, and prices that are none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fathom.analysis.energy import priced
from fathom.analysis.results import Money, Step
from fathom.errors import BadInputError
from fathom.machine.price import Price, configured_price, parse_price
from fathom.report import heading, sections
from tests.support import kept_reports
from tests.support.running import run_fathom
from tests.support.small_sounding import make


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.50/h", Price(3.5, "USD")),
        ("$3.50/h", Price(3.5, "USD")),
        ("2.8 EUR/h", Price(2.8, "EUR")),
        ("3€/h", Price(3.0, "EUR")),
        ("usd/h 12", Price(12.0, "USD")),
        (" .5 GBP/h ", Price(0.5, "GBP")),
    ],
)
def test_prices_as_people_write_them(text, expected):
    assert parse_price(text) == expected


BAD = [
    "",
    "3.50",
    "free",
    "0/h",
    "-1/h",
    "1e400/h",
    "nan/h",
    "3/h/h",
    "$3 EUR/h",
    "3,50/h",
    "3 DOLLARS/h",
    "\n" * 9,
]


@pytest.mark.parametrize("text", BAD)
def test_invalid_prices_are_refused_in_one_sentence(text):
    with pytest.raises(BadInputError) as refused:
        parse_price(text)
    assert "3.50/h" in str(refused.value) and "\n" not in str(refused.value)


def test_the_working_directory_comes_before_the_users_settings(tmp_path: Path, monkeypatch) -> None:
    settings, here = tmp_path / "settings", tmp_path / "here"
    for folder in (settings / "fathom", here):
        folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(settings))
    assert configured_price(here) is None
    (settings / "fathom" / "fathom.toml").write_text('[cost]\nprice = "2/h"\n')
    assert configured_price(here) == Price(2.0)
    (here / "fathom.toml").write_text("[other]\nkey = 1\n")
    assert configured_price(here) == Price(2.0)
    (here / "fathom.toml").write_text('[cost]\nprice = "3 EUR/h"\n')
    assert configured_price(here) == Price(3.0, "EUR")


@pytest.mark.parametrize("text", ["[cost\n", "[cost]\nprice = 'cheap'\n", "[cost]\nprice = 3\n", "\x00"])
def test_bad_settings_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "fathom.toml").write_text(text)
    with pytest.raises(BadInputError, match=r"fathom\.toml"):
        configured_price(tmp_path)


def test_a_step_a_million_tokens_and_a_finding_have_their_price():
    result = priced(kept_reports.report("hf_trainer"), Price(3.6))
    assert result.cost is not None and result.cost.devices == len(result.devices)
    mean = result.step.clean_mean_ms
    assert result.cost.per_step == pytest.approx(mean / 1e6)
    first = result.findings[0]
    assert first.saves_per_day == Money(pytest.approx(first.share * 3.6 * 24), "USD")
    text = " ".join(line.plain for line in sections.cost(result.cost, 98))
    assert text.startswith("cost      3.60 USD per GPU-hour")
    assert kept_reports.report("hf_trainer").findings[0].saves_per_day is None


def test_throughput_is_priced_where_it_is_known():
    step = Step(100.0, None, None, 20, "train", tokens_per_s=1e6, samples_per_s=None)
    result = kept_reports.report("train_gpt")
    result = priced(type(result)(step, [], result.integrity, None, None, None), Price(3.6, "EUR"))
    assert result.cost.per_million_tokens == pytest.approx(0.001)
    assert result.cost.per_million_samples is None and result.cost.devices == 1


def test_the_opening_shows_the_value_of_a_day():
    result = priced(kept_reports.report("hf_trainer"), Price(3.5))
    text = heading._saves(result.findings[0], heading.basis(result.step))
    assert "USD per day and GPU." in text


def test_the_command_takes_a_price_and_refuses_anything_else(tmp_path: Path) -> None:
    sounding = make(tmp_path / "small.fathom").path
    priced_report = run_fathom("report", str(sounding), "--price", "3.50/h", cwd=tmp_path)
    assert priced_report.returncode == 0 and "3.50 USD per GPU-hour" in priced_report.stdout
    as_json = run_fathom("report", str(sounding), "--price", "3 EUR/h", "--json", cwd=tmp_path)
    assert '"currency":"EUR"' in as_json.stdout
    (tmp_path / "fathom.toml").write_text('[cost]\nprice = "4/h"\n')
    assert "4.00 USD per GPU-hour" in run_fathom("report", str(sounding), cwd=tmp_path).stdout
    refused = run_fathom("report", str(sounding), "--price", "cheap", cwd=tmp_path)
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
