"""The command of a recorded program: found, named, and kept without its secrets."""

import stat
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fathom.errors import BadInputError
from fathom.recorder.command import CannotLaunchError, default_name, free_output, prevented, resolve_command
from fathom.recorder.launch import INJECT, child_environment
from fathom.recorder.plan import Plan
from fathom.recorder.redact import allowed_environment, redact_command
from fathom.redaction import HIDDEN, redact_text

SECRET = "S3cretValue99"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --lr 3", "train"),
        ("python -u some/dir/train_gpt.py", "train_gpt"),
        ("python -m package.training", "training"),
        ("python -m package.__main__", "package"),
        ("torchrun --nproc-per-node 2 ddp.py", "ddp"),
        ("python -m torch.distributed.run ddp.py", "ddp"),
        ("accelerate launch --num_processes 1 tune.py", "tune"),
        ("bash run.sh", "run"),
        ("./run_all.sh", "run_all"),
        ("/usr/bin/env true", "env"),
        ("python -c pass", "python"),
    ],
)
def test_the_script_names_the_recording(command, name):
    assert default_name(command.split()) == name


def test_names_count_up_and_leave_what_exists(tmp_path):
    assert free_output("train", tmp_path) == tmp_path / "train.fathom"
    (tmp_path / "train.fathom").mkdir()
    (tmp_path / "train-2.fathom").mkdir()
    assert free_output("train", tmp_path) == tmp_path / "train-3.fathom"


@pytest.mark.parametrize("flags", ["-I", "-S", "-E", "-uE", "-X dev -I", "-W ignore -S", "-uS -m"])
def test_isolated_python_is_reported(flags):
    assert "keeps the probe out" in prevented(["/usr/bin/python3.12", *flags.split(), "train.py"])


@pytest.mark.parametrize(
    "command",
    [
        "python train.py -I",
        "python -m mod -S",
        "python -c pass -E",
        "python -X Importtime x.py",
        "torchrun -S",
        "sort -S 5",
    ],
)
def test_flags_of_the_program_itself_are_not_pythons(command):
    assert prevented(command.split()) is None


def test_a_bare_script_goes_to_python(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass")
    path, command = resolve_command(["train.py", "--lr", "3"])
    assert command[1:] == ["train.py", "--lr", "3"] and "python" in path


def test_a_script_with_its_own_interpreter_keeps_it(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("#!/bin/sh\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert resolve_command([str(script)]) == (str(script), [str(script)])


@pytest.mark.parametrize(
    ("command", "status"), [(["no-such-program"], 127), ([""], 127), ([], 127), (["/"], 126)]
)
def test_unrunnable_programs_exit_as_in_a_shell(command, status):
    with pytest.raises(CannotLaunchError) as error:
        resolve_command(command)
    assert error.value.status == status


def test_a_file_without_permission_is_126(tmp_path):
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    with pytest.raises(CannotLaunchError) as error:
        resolve_command([str(tmp_path / "tool")])
    assert error.value.status == 126


@pytest.mark.parametrize(
    "words",
    [
        [f"--token={SECRET}"],
        ["--api-key", SECRET],
        ["--api_key", SECRET],
        ["-password", SECRET],
        [f"HF_TOKEN={SECRET}"],
        [f"wandb.api_key={SECRET}"],
        [f'{{"api_key": "{SECRET}"}}'],
        [f"--header=Authorization: Bearer {SECRET}"],
        [f"https://user:{SECRET}@host/path"],
        [f"postgres://{SECRET}@host"],
        ["--anything", f"hf_{SECRET}"],
        ["--anything", f"sk-{SECRET}"],
        [f"print(openai(apiKey='{SECRET}'))"],
        [f"--secret-access-key={SECRET}"],
    ],
)
def test_secrets_of_the_command_are_hidden(words):
    kept = redact_command(["python", "train.py", *words, "--lr", "3e-4"])
    assert SECRET not in " ".join(kept)
    assert HIDDEN in " ".join(kept)
    assert kept[:2] == ["python", "train.py"] and kept[-2:] == ["--lr", "3e-4"]


@pytest.mark.parametrize(
    "words",
    [
        "--max-tokens 128",
        "--tokenizer gpt2",
        "--num_tokens=5",
        "--author me",
        "data/keys.txt",
        "--key-dim=64",
        "a=b",
    ],
)
def test_strings_that_only_resemble_secrets_stay(words):
    assert redact_command(words.split()) == words.split()


@given(st.lists(st.text(max_size=30), max_size=6))
def test_redaction_keeps_the_number_of_words(words):
    assert len(redact_command(words)) == len(words)


def test_the_environment_is_an_allow_list():
    kept = allowed_environment(
        {
            "CUDA_VISIBLE_DEVICES": "0,1",
            "NCCL_DEBUG": "INFO",
            "NCCL_SECRET_KEY": SECRET,
            "TORCH_URL": f"https://me:{SECRET}@host",
            "HF_TOKEN": SECRET,
            "HOME": "/home/me",
        }
    )
    assert kept == {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "NCCL_DEBUG": "INFO",
        "TORCH_URL": f"https://{HIDDEN}@host",
    }


def test_the_program_keeps_its_own_path(tmp_path):
    mine = f"/one{':'}/two"
    child = child_environment({"PYTHONPATH": mine, "A": "b"}, tmp_path / "raw")
    assert child["PYTHONPATH"] == f"{INJECT}:{mine}"
    assert child["FATHOM_RAW"] == str(tmp_path / "raw") and child["A"] == "b"
    assert child_environment({}, tmp_path)["PYTHONPATH"] == str(INJECT)
    assert "TEARDOWN_CUPTI" not in child_environment({}, tmp_path)
    assert child_environment({}, tmp_path, traced=True)["TEARDOWN_CUPTI"] == "1"
    assert child_environment({"TEARDOWN_CUPTI": "0"}, tmp_path, traced=True)["TEARDOWN_CUPTI"] == "0"
    assert child_environment(child, tmp_path)["PYTHONPATH"] == child["PYTHONPATH"]


@pytest.mark.parametrize(
    "options",
    [
        {"depth": "deep"},
        {"steps": 0},
        {"settle": "soon"},
        {"settle": -1},
        {"step_on": "moon"},
        {"at": (-1,)},
        {"stop_after": "later"},
        {"stop_after": 0},
    ],
)
def test_options_that_mean_nothing_are_refused(options):
    with pytest.raises(BadInputError, match=r"^--.*\.$"):
        Plan(**options)


def test_the_tests_python_is_not_isolated():
    assert prevented([sys.executable, "train.py"]) is None


@pytest.mark.parametrize("part", ["a-", "-eyJaaaaaaaa", "-hf_a", "key "])
def test_no_text_of_a_stranger_keeps_the_search_for_secrets_busy(part):
    text = part * (100_000 // len(part))
    assert redact_text(text) == text
    assert redact_text(f"{text} --api-key=abc") == f"{text} --api-key={HIDDEN}"
