"""Rules of the group `framework`."""
