"""Kineto traces, the files that torch.profiler writes."""

from fathom.sounding.kineto.trace import NothingReadError, NoWorkError, Trace, read_trace
