"""Forks three levels deep without exec, in a loop."""

import os

import fathom

for level in range(3):
    fathom.step()
    child = os.fork()
    if child:
        print(level, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        os._exit(level)
fathom.step()
