"""Rules of the group `kernels`."""
