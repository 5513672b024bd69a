"""The command line: `fathom`, or `python -m fathom`."""

from fathom.cli.main import main, start
