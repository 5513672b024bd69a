"""The site builds without a warning, loads nothing from elsewhere, and shows what commands print."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import console

BLOCK = "```console\n$ echo one\n$ echo two | tr a-z A-Z\n```"


def test_commands_without_output_get_it():
    assert console.filled(BLOCK) == "```console\n$ echo one\none\n$ echo two | tr a-z A-Z\nTWO\n```"


def test_recorded_output_stays_until_it_is_renewed(tmp_path):
    recorded = "```console\n$ echo one\nONE\n```\n\n```sh\nfalse\n```"
    assert console.filled(recorded) == recorded
    assert console.repeated(recorded, tmp_path) == recorded.replace("ONE", "one")


def test_a_failing_command_is_an_error():
    with pytest.raises(console.CommandError, match="status 3"):
        console.filled("```console\n$ exit 3\n```")


def test_commands_of_a_page_are_those_of_its_blocks():
    page = BLOCK + "\n\n```sh\n# a comment\nfathom run \\\n  -- python a.py\n```\n\n```python\nprint()\n```"
    assert [*console.commands(page)] == ["echo one", "echo two | tr a-z A-Z", "fathom run    -- python a.py"]


@pytest.mark.programs
def test_no_link_is_dead_and_nothing_loads_from_elsewhere(tmp_path):
    environment = {**os.environ, "DOCS_WITHOUT_OUTPUT": "1", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = [*tmp_path.rglob("*.html")]
    assert len(pages) > 40
    for page in pages:
        html = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=[\"']?(https?:[^\"' >]+)", html)
        assert not loaded, f"{page.name}: {loaded}"
    listed = (tmp_path / "llms.txt").read_text(encoding="utf-8")
    assert listed.startswith("# Fathom\n\n> Where")
    links = re.findall(r"^- \[.+?]\((\S+)\)", listed, re.M)
    assert len(links) > 35 and all((tmp_path / link).read_text(encoding="utf-8") for link in links)
