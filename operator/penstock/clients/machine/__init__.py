"""The local machine: clocks, cache folder, log output, matplotlib set-up."""
