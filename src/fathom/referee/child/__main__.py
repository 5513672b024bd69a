"""`python -m fathom.referee.child SPEC IN OUT`."""

from fathom.referee.child.serving import main

main()
