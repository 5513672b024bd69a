"""Counters: how much of a program has them, whether Nsight Compute agrees, and what they show."""
