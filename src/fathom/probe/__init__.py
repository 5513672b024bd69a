"""The part of Fathom that runs inside the program. It imports only the standard library and loaded modules.

`step` and `region` are for programs and cost nothing while nothing records. `start` and `stop` are for
`fathom.record`: they begin and end the recording of this process. `task` returns its place in a job.
`ELASTIC` is a variable of the workers of torchrun.
"""

from fathom.probe.launchers import ELASTIC, Task, task
from fathom.probe.marks import region, start, step, stop
