"""Replaces itself by a program that prints its environment."""

import os
import shutil
import sys

import fathom

fathom.step()
fathom.step()
sys.stdout.flush()
os.execve(shutil.which("env"), ["env"], {**os.environ, "MORE": "1"})
