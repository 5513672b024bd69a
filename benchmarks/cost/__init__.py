"""Fathom's own cost: time and memory of a recorded program, and of an import."""
