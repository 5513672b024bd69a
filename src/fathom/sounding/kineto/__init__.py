"""Kineto traces, the files that torch.profiler writes."""

from fathom.sounding.kineto.trace import Trace, read_trace

__all__ = ["Trace", "read_trace"]
