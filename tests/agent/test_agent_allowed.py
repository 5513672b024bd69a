"""Which commands a pattern lets run."""

from __future__ import annotations

import pytest

from fathom.agent import Allowed
from fathom.errors import BadInputError

TRAIN = ["python train.py*"]


@pytest.mark.parametrize(
    ("patterns", "command", "words"),
    [
        (TRAIN, "python train.py", ["python", "train.py"]),
        (TRAIN, "python  'train.py'", ["python", "train.py"]),
        (TRAIN, "python train.py2", ["python", "train.py2"]),
        (["python train.py *"], "python train.py", ["python", "train.py"]),
        (["python train.py *"], "python train.py --lr 3e-4 -v", ["python", "train.py", "--lr", "3e-4", "-v"]),
        (["python train.py *"], "python train.py --name 'a b'", ["python", "train.py", "--name", "a b"]),
        (["python train.py --lr ?"], "python train.py --lr 3", ["python", "train.py", "--lr", "3"]),
        (["python -m train --seed=*"], "python -m train --seed=7", ["python", "-m", "train", "--seed=7"]),
        (["sh -c 'python a.py; python b.py'"], "sh -c 'python a.py; python b.py'",
         ["sh", "-c", "python a.py; python b.py"]),
        (["python [a].py"], "python [a].py", ["python", "[a].py"]),
    ],
)  # fmt: skip
def test_an_allowed_command_becomes_its_words(patterns, command, words):
    assert Allowed(patterns).command(command) == words


@pytest.mark.parametrize(
    ("patterns", "command"),
    [
        # another program, or more arguments than the pattern has words
        (TRAIN, "python evil.py"),
        (TRAIN, "python train.py --lr 3"),
        (TRAIN, "python train.py evil.py"),
        (TRAIN, "python"),
        (TRAIN, "python3 train.py"),
        (TRAIN, "/tmp/python train.py"),
        (TRAIN, "./python train.py"),
        (TRAIN, "bash -c 'python train.py'"),
        (TRAIN, "sudo python train.py"),
        # a shell
        (TRAIN, "python train.py; rm -rf /"),
        (TRAIN, "python train.py;rm"),
        (TRAIN, "python train.py&&rm"),
        (TRAIN, "python train.py|sh"),
        (TRAIN, "python train.py`rm`"),
        (TRAIN, "python train.py$(rm)"),
        (TRAIN, "python train.py>out"),
        (["python train.py *"], "python train.py ; rm"),
        (["python train.py *"], "python train.py $HOME"),
        # line ends and control characters
        (TRAIN, "python train.py\nrm -rf /"),
        (TRAIN, "python train.py\r"),
        (["python train.py *"], "python train.py 'a\nb'"),
        (TRAIN, "python train.py\x00"),
        (TRAIN, "python train.py\u2028rm"),
        # the environment
        (TRAIN, "PYTHONSTARTUP=evil.py python train.py"),
        (TRAIN, "LD_PRELOAD=./evil.so python train.py"),
        (TRAIN, "env python train.py"),
        # a wildcard is text within one argument: no folder, no option, no second argument
        (TRAIN, "python train.py/../evil.py"),
        (TRAIN, "python 'train.py evil.py' x"),
        (["python *.py"], "python -cimport\\ os.py"),
        (["python *.py"], "python a/evil.py"),
        (["python *.py"], "python a.py b.py"),
        (["python ?c.py"], "python -c.py"),
        (["python *"], "python -c pass"),
        (["python *"], "python -m http.server"),
        (["python train.py --lr *"], "python train.py"),
        # nothing to run
        (TRAIN, ""),
        (TRAIN, "   "),
        (TRAIN, "''"),
        (TRAIN, "python 'train.py"),
        ([], "python train.py"),
    ],
)  # fmt: skip
def test_every_other_command_is_refused(patterns, command):
    with pytest.raises(BadInputError):
        Allowed(patterns).command(command)


@pytest.mark.parametrize("pattern", ["*", "* train.py", "?ython train.py", "", "python\ntrain.py", "'open"])
def test_a_pattern_for_any_program_is_refused(pattern):
    with pytest.raises(BadInputError):
        Allowed([pattern])


def test_functions_are_allowed_by_their_address():
    allowed = Allowed(["norm.py:*"])
    assert allowed.address("norm.py:fused") == "norm.py:fused"
    for other in ("os:system", "norm.py", "other.py:fused", "a/norm.py:fused", "norm.py:../x"):
        with pytest.raises(BadInputError):
            allowed.address(other)


def test_a_refusal_says_what_is_allowed():
    with pytest.raises(BadInputError, match=r"'python evil.py' is not allowed.*'python train.py\*'"):
        Allowed(TRAIN).command("python evil.py")
