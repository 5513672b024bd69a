"""Rules of the `communication` group."""
