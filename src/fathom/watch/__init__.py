"""Follow a program while `fathom run` records it: `fathom watch`."""

from typing import TYPE_CHECKING

from fathom.lazy import exports

if TYPE_CHECKING:
    from fathom.watch.folders import running
    from fathom.watch.rule import Rule
    from fathom.watch.serving import served
    from fathom.watch.terminal import in_lines, on_screen, plain, print_page
    from fathom.watch.watch import Watch

__all__, __getattr__ = exports(__name__)
