"""`fathom tune` without a subcommand tunes a program; its arguments are checked before anything runs."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.cli.tune import loss_of, seconds_of
from fathom.errors import BadInputError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget", "soon", "--", "python", "a.py"], "takes a time such as"),
        (["--until", "accuracy>1", "--", "python", "a.py"], "takes a loss such as"),
        ([], "No command was given"),
        (["kernel", "a.py", "."], "is not a function in a file"),
        (["kernel", "a.py:f"], "Give the reference as file.py:function and the folder"),
        (["kernel", "a.py:f", ".", "--technique", "cache-blocks"], "brings its reference and candidate"),
        (["kernel", "a.py:f", ".", "-o", "best.py"], "add --search"),
        (["kernel", "a.py:f", ".", "--search", "--time", "soon"], "--time takes a time such as"),
    ],
)
def test_wrong_arguments_get_a_sentence_and_status_2(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["tune", *words])
    assert result.exit_code == 2 and message in result.output


def test_the_knobs_are_listed() -> None:
    result = CliRunner().invoke(app, ["tune", "--explain"])
    assert result.exit_code == 0 and "loader  Workers of data loaders" in result.output
    assert "values     one · half of the cores · all cores" in result.output  # each once
    compiling = result.output.partition("compile  torch.compile")[2].partition("\n\n")[0]
    assert "host-launch-bound" in " ".join(compiling.split())  # which suggests one value


def test_durations_and_losses() -> None:
    assert [seconds_of(text) for text in ("90s", "10m", "1.5h", "20")] == [90, 600, 5400, 20]
    assert (loss_of("loss<=2.5"), loss_of("loss < 1e-3"), loss_of(None)) == (2.5, 1e-3, None)
    with pytest.raises(BadInputError):
        seconds_of("0m")
