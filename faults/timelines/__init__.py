"""Simulated timelines of jobs on several GPUs, each with a fault of communication and its mended form."""
