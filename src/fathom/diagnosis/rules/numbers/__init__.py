"""Rules of the `numbers` group."""
