"""Conversion factors between units. Recorded times are in nanoseconds, sizes in bytes."""

NS_PER_US = 1e3
NS_PER_MS = 1e6
NS_PER_S = 1e9
US_PER_MS = 1e3
US_PER_S = 1e6
MS_PER_S = 1e3

MB, GB = 1e6, 1e9  # bytes; for data rates and evidence
KIB, MIB, GIB = 2**10, 2**20, 2**30  # bytes; for buffers and memory
