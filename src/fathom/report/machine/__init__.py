"""What a person sees of a machine: its inventory, its ceilings, and how it compares with another one."""

from fathom.report.machine.pages import print_ceilings, print_comparison, print_machine

__all__ = ["print_ceilings", "print_comparison", "print_machine"]
