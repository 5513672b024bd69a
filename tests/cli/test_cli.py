"""The command line: help, errors, and the commands that read soundings."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import subprocess
import zipfile

import pytest
from typer.testing import CliRunner

from fathom.cli.main import app
from fathom.cli.quick import only_read, roomy, stay
from fathom.version import VERSION
from tests.support.running import PYTHON, environment, fathom_command, run_fathom
from tests.support.small_sounding import make

COMMANDS = ("run", "report", "tips", "doctor", "import", "query", "pack")


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def sounding(tmp_path):
    return make(tmp_path / "small.fathom").path


@pytest.fixture(params=["folder", "packed"])
def either(request, sounding):
    """The same sounding as a directory and as one file."""
    if request.param == "folder":
        return sounding
    assert invoke("pack", sounding).exit_code == 0
    return sounding.with_name("small.fathom.zip")


def test_every_command_explains_itself_with_an_example():
    listed = invoke("--help").output
    for command in COMMANDS:
        shown = invoke(command, "--help")
        assert command in listed and shown.exit_code == 0
        assert f"fathom {command}" in shown.output.split("Example")[1]


def test_the_version():
    assert invoke("--version").output.strip() == f"fathom {VERSION}"


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "--"],
        ["run", "--depth", "deep", "true"],
        ["run", "--settle", "soon", "true"],
        ["run", "--steps", "0", "true"],
        ["run", "--counter-samples", "0", "true"],
        ["run", "--stop-after", "later", "true"],
        ["run", "--no-such-option", "true"],
        ["dive"],
    ],
)
def test_wrong_usage_is_2_and_runs_nothing(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    shown = invoke(*words)
    if words == ["run", "--stop-after", "later", "true"]:  # `later` is a command then, and there is none
        assert shown.exit_code == 127
    else:
        assert shown.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_query_counts_over_all_ranks(either):
    sql = "SELECT rank, name, count(*) AS n, sum(end_ns - start_ns) AS ns FROM kernels GROUP BY rank, name"
    shown = invoke("query", either, f"{sql} ORDER BY rank, name", "--format", "json")
    assert json.loads(shown.output) == [
        {"rank": rank, "name": name, "n": 3, "ns": ns}
        for rank in (0, 1)
        for name, ns in (("Memcpy HtoD", 3_000_000), ("gemm", 12_000_000))
    ]


def test_bash_completes_commands_and_options():
    def completed(*words):
        asked = {"_FATHOM_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words)}
        env = {**asked, "COMP_CWORD": str(len(words) - 1)}
        return CliRunner().invoke(app, [], env=env, prog_name="fathom").output.split()

    assert completed("fathom", "re") == ["report"]
    assert completed("fathom", "machine", "c") == ["check", "compare"]
    assert "--roofline" in completed("fathom", "report", "--r")


def test_query_without_sql_lists_the_tables(sounding):
    shown = invoke("query", sounding, "--format", "json")
    rows = {row["table"]: row for row in json.loads(shown.stdout)}
    each = " UNION ALL ".join(f"SELECT '{name}' AS name, count(*) AS n FROM {name}" for name in rows)
    shown = invoke("query", sounding, each, "--format", "json", "--limit", "1000")
    counted = {row["name"]: row["n"] for row in json.loads(shown.stdout)}
    for name, row in rows.items():
        assert row["rows"] in (None, counted[name]), name
        columns = invoke("query", sounding, f"SELECT * FROM {name}", "--format", "csv", "--limit", "0")
        assert set(row["columns"].split(", ")) == set(columns.stdout.strip().split(",")), name
    assert "device_ns" in rows["steps"]["columns"].split(", ") and rows["ledger"]["rows"] is None


def test_query_as_csv_and_with_a_limit(sounding):
    shown = invoke(
        "query", sounding, "SELECT step, kind FROM steps ORDER BY step", "--format", "csv", "--limit", "3"
    )
    assert list(csv.reader(io.StringIO(shown.output))) == [
        ["step", "kind"],
        ["0", "train"],
        ["0", "train"],
        ["1", "train"],
    ]


def test_query_as_a_table_shows_every_row(sounding):
    lines = invoke("query", sounding, "SELECT step, name FROM steps CROSS JOIN kernels").output.splitlines()
    assert len([line for line in lines if "gemm" in line]) == 6 * 6


def test_an_empty_table_can_be_asked(sounding):
    assert json.loads(invoke("query", sounding, "SELECT * FROM waits", "--format", "json").output) == []


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("DROP TABLE steps", "is not a query; write a SELECT"),
        ("DELETE FROM steps", "write a SELECT"),
        ("/* all */ TRUNCATE TABLE steps", "write a SELECT"),
        ("SELECT * FROM ledgers", "nearest: ledger"),
        ("SELECT nme FROM kernels", "nearest: name"),
        ("SELECT * FROM kernel", "nearest: kernels"),
        ("SELECT * FROM nonsense_altogether", "the tables are steps, summaries, ops"),
        ("tell me why", "SQL"),
        ("", "SQL"),
        ("SELECT 1; SELECT 2", "SQL"),
        ("SELECT name + 1 FROM", "SQL"),
    ],
)
def test_nonsense_in_sql_is_one_sentence(sounding, sql, says):
    shown = invoke("query", sounding, sql)
    assert shown.exit_code == 2 and says in shown.output
    assert shown.output.startswith("fathom: ") and shown.output.count("\n") == 1


def test_a_pack_is_the_same_for_the_same_sounding(tmp_path, sounding):
    for name in ("a.zip", "b.zip"):
        invoke("pack", sounding, "-o", tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    assert sorted(zipfile.ZipFile(tmp_path / "a.zip").namelist()) == [
        "machine.json",
        "manifest.json",
        "rank-0/kernels.parquet",
        "rank-0/steps.parquet",
        "rank-1/kernels.parquet",
        "rank-1/steps.parquet",
    ]


def test_a_pack_can_be_packed_again(tmp_path, sounding):
    invoke("pack", sounding, "-o", tmp_path / "a.zip")
    assert invoke("pack", tmp_path / "a.zip", "-o", tmp_path / "b.zip").exit_code == 0
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_pack_of_a_pack_goes_beside_it_and_not_where_it_was_unpacked(tmp_path, sounding):
    packed = tmp_path / "a.fathom.zip"
    invoke("pack", sounding, "-o", packed)
    done = invoke("pack", packed)
    assert done.exit_code == 2 and f"{packed} is packed already" in done.output


def test_a_pack_overwrites_nothing(tmp_path, sounding):
    (tmp_path / "a.zip").write_text("mine")
    assert invoke("pack", sounding, "-o", tmp_path / "a.zip").exit_code == 2
    assert (tmp_path / "a.zip").read_text() == "mine"


def test_a_closed_pipe_is_no_error(tmp_path, sounding):
    sql = "SELECT k.name FROM kernels k, kernels l, kernels m, kernels n"
    words = fathom_command("query", sounding, sql, "--format", "csv")
    process = subprocess.Popen(
        words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_an_unforeseen_error_is_one_sentence_and_a_file(tmp_path, sounding):
    (sounding / "machine.json").write_text("{}")
    code = "import fathom.sounding.sql as s, fathom.sounding as f, sys\n"
    code += "def broken(*_): raise ZeroDivisionError('of nothing')\nf.select = broken\n"
    code += (
        f"sys.argv = ['fathom', 'query', {str(sounding)!r}, 'SELECT 1']\nfrom fathom.cli import main; main()"
    )
    for debug, lines in (("", 1), ("1", 8)):
        env = environment(TMPDIR=str(tmp_path), FATHOM_DEBUG=debug)
        done = subprocess.run([PYTHON, "-c", code], env=env, capture_output=True, text=True)
        assert done.returncode == 1 and "of nothing" in done.stderr
        assert done.stderr.count("\n") >= lines and (debug or done.stderr.count("\n") == 1)
    [details] = tmp_path.glob("fathom-error-*.txt")
    assert "Traceback" in details.read_text()


def test_python_m_fathom(tmp_path):
    assert run_fathom("--version", cwd=tmp_path).stdout.strip() == f"fathom {VERSION}"


def test_reading_commands_start_without_other_commands_or_the_checks_of_types(tmp_path):
    """The import of pydantic, which new releases of typer check values with, is most of such a start."""
    code = (
        "import sys; from fathom.cli import main\n"
        "sys.argv[1:] = ['report', sys.argv[1], '--kind', 'decode']\n"
        "try: main()\n"
        "except SystemExit as end: print(end.code, {'pydantic', 'fathom.cli.prove'} & {*sys.modules})"
    )
    missing = str(tmp_path / "none.fathom")
    done = subprocess.run([PYTHON, "-c", code, missing], env=environment(), capture_output=True, text=True)
    assert done.stdout.split() == ["2", "set()"] and missing in done.stderr


def test_few_threads_are_asked_for_by_commands_that_read_alone(monkeypatch):
    monkeypatch.setenv("POLARS_MAX_THREADS", "7")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")  # so that it is put back
    del os.environ["OPENBLAS_NUM_THREADS"]
    only_read("run")
    assert "OPENBLAS_NUM_THREADS" not in os.environ
    only_read("report")
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1" and os.environ["POLARS_MAX_THREADS"] == "7"


def test_only_commands_that_examine_stay_on_one_processor(monkeypatch):
    """The others start programs, which would inherit the limit, or look at the machine's processors."""
    allowed, chosen = os.sched_getaffinity(0), []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, processors: chosen.append(processors))
    for command in ("run", "import", "tips", "machine"):
        stay(command)
    assert chosen == []
    stay("report")
    [processors] = chosen
    assert len(processors) == 1 and processors <= allowed


def test_calls_from_a_roomy_function_map_no_memory():
    """Elsewhere, a loop maps and unmaps memory if its calls begin a new chunk of frames."""
    wide = eval(f"lambda x: ({'x, ' * 60})")  # its frame is larger than that of `faults`

    def faults(depth=120):
        """The most page faults of a hundred calls, made at any of these depths."""
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        for _ in range(100):
            wide(None)
        here = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
        return max(here, faults(depth - 1)) if depth else here

    with_room = []
    roomy(lambda: with_room.append(faults()))()
    assert with_room[0] < 50 < faults()


def test_a_command_ends_with_its_handlers_and_without_freeing_objects():
    """Freeing all objects when the interpreter ends takes longer than most of a short command."""
    code = (
        "import atexit, sys\n"
        "class Object:\n    __del__ = lambda self: print('freed')\n"
        "kept, sys.argv[1:] = Object(), [sys.argv[1]]\n"
        "atexit.register(print, 'handled')\n"
        "from fathom.cli import start; start()"
    )
    for argument, status in (("--version", 0), ("--none", 2)):
        words = [PYTHON, "-c", code, argument]
        done = subprocess.run(words, env=environment(), capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "handled" and done.returncode == status, done.stderr
