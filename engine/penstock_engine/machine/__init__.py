"""The machine that the engine runs on: device, control groups, CPU threads."""
