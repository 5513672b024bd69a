"""The command line: `fathom`, or `python -m fathom`."""

from fathom.cli.main import app, main, start
