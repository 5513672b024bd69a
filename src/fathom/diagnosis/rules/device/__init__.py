"""Rules of the `device` group."""
