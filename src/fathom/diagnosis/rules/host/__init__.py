"""Rules of the group `host`."""
