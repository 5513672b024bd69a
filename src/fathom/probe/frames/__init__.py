"""The location of this process's frames in memory, so that another process can read them while it runs."""

from fathom.probe.frames.beacon import FIFO, LAYOUT, SAMPLED, Beacon, main_thread
from fathom.probe.frames.layout import FrameLayout, NoFramesError, calibrate, thread_state
from fathom.probe.frames.memory import PAGE, ProcessMemory, allow

__all__ = [
    "FIFO",
    "LAYOUT",
    "PAGE",
    "SAMPLED",
    "Beacon",
    "FrameLayout",
    "NoFramesError",
    "ProcessMemory",
    "allow",
    "calibrate",
    "main_thread",
    "thread_state",
]
