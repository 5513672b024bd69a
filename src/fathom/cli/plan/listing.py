"""`fathom plan models` and `fathom plan systems`: what can be planned by name."""

from __future__ import annotations


def models() -> None:
    """List the public models that can be planned by name."""
    from fathom.planner.workload import known_models, model

    for name in known_models():
        shape = model(name)
        print(f"{name:<26}{shape.parameters / 1e9:>9.2f} B{shape.active_parameters / 1e9:>9.2f} B active")


def systems() -> None:
    """List the systems that can be planned by name."""
    from fathom.planner.hardware import hardware, known_systems

    for name in known_systems():
        system = hardware(name)
        links = ", ".join(f"{d.name} {d.bandwidth.value / 1e9:.0f} GB/s" for d in system.fabric)
        mark = " (announced)" if system.announced else ""
        print(f"{name:<14}{system.chip + mark:<24}{system['memory'].value / 1e9:>5.0f} GB  {links}")
