"""The location of this process's frames in memory, so that another process can read them while it runs."""

from fathom.probe.frames.beacon import DENSE, FIFO, LAYOUT, SAMPLED, SPARSE, Beacon, main_thread
from fathom.probe.frames.iterators import ITERATORS
from fathom.probe.frames.layout import FrameLayout, NoFramesError, calibrate, thread_state
from fathom.probe.frames.memory import PAGE, ProcessMemory, allow
