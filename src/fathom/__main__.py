"""`python -m fathom`."""

from fathom.cli import start

start()
