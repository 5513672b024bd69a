"""Restores the default action of SIGPIPE, as tools for pipelines do."""

import os
import signal

import fathom

signal.signal(signal.SIGPIPE, signal.SIG_DFL)
for _ in range(100):
    fathom.step()
reading, writing = os.pipe()
os.close(reading)
os.write(writing, b"x")
