"""This machine: clocks, cache folder, log output, plots."""
