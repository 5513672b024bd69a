"""Hardware of a plan: a datasheet, a measured machine file, or a mixture, with its fabric."""

from fathom.planner.hardware.catalogue import Domain, Hardware, hardware, known_systems, quantity, systems
from fathom.planner.hardware.measured import from_machine
