"""Rules of the group `input`."""
