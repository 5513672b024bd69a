"""Plans against published measurements: calibration, validation, and other planners' published errors."""
