"""`python -m fathom`."""

from fathom.cli import main

main()
