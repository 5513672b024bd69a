"""What this machine is: inventory and fingerprint."""

from fathom.machine.inventory import fingerprint, inventory

__all__ = ["fingerprint", "inventory"]
