"""Starts a Python with another sitecustomize."""

import os
import pathlib
import subprocess
import sys
import tempfile

import fathom

fathom.step()
fathom.step()
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "sitecustomize.py").write_text("print('customised')\nVALUE = 3\n")
    code = "import sitecustomize, fathom, os; fathom.step(); print(sitecustomize.VALUE, sorted(os.environ))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": folder}, capture_output=True
    )
print(done.stdout.decode().replace(folder, "FOLDER"), done.stderr.decode(), done.returncode)
