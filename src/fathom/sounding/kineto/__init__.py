"""Kineto traces, the files that torch.profiler writes."""

from fathom.sounding.kineto.trace import NothingReadError, Trace, read_trace
