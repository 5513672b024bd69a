"""Patches of a program's source that make proven settings permanent: `making` has the entrance."""
