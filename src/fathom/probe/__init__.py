"""What enters the program. Standard library only, and what the program has imported itself.

`step` and `region` are for programs; they are free while nothing records. `start` and `stop` are for
`fathom.record`: they record this process from now on, and end that.
"""

from fathom.probe.marks import region, start, step, stop

__all__ = ["region", "start", "step", "stop"]
