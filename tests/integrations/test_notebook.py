"""`%%fathom` records a cell, shows it, and prints errors on one line."""

from __future__ import annotations

import pytest

IPython = pytest.importorskip("IPython")

SECRET = "hf_Abcdefgh1234567890"
CELL = f"""%%fathom NAME --depth surface --settle 3
import fathom, time
for i in range(40):
    time.sleep(0.002)
    fathom.step(kind="step {SECRET}")
done = i
"""


@pytest.fixture
def shell(tmp_path, monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    made = InteractiveShell.instance()
    made.run_line_magic("load_ext", "fathom")
    yield made
    InteractiveShell.clear_instance()


def test_a_cell_is_recorded_and_shown_without_secrets(shell, tmp_path, capsys):
    shell.run_cell(CELL.replace("NAME", ""))
    assert shell.user_ns["done"] == 39
    sounding = shell.user_ns["_"]
    assert sounding.step.clean_ms > 2 and "<h4>" in sounding._repr_html_()
    kept = [path for path in (tmp_path / "cell.fathom").rglob("*") if path.is_file()]
    assert kept and not any(SECRET.encode() in path.read_bytes() for path in kept)
    assert SECRET not in sounding._repr_html_() + capsys.readouterr().out
    shell.run_cell("%%fathom\n1 / 0")  # overwrites it
    assert "ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--depth nonsense", "--depth nonsense is unknown"),
        ("--nope", "unrecognized arguments: --nope"),
        ("--steps x", "invalid int value"),
        ("'open", "No closing quotation"),
        (".", "already exists"),
    ],
)
def test_bad_options_are_one_sentence_and_the_cell_does_not_run(shell, capsys, line, text):
    shell.run_cell(f"%%fathom {line}\nran = True")
    said = capsys.readouterr()
    assert text in said.err and "Traceback" not in said.out + said.err and "ran" not in shell.user_ns
