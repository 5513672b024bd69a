"""Machines as text: inventory, ceilings, comparison."""

from fathom.report.machine.pages import print_ceilings, print_comparison, print_machine

__all__ = ["print_ceilings", "print_comparison", "print_machine"]
