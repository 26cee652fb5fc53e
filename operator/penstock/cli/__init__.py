"""The `penstock` command: one module for each sub-command."""
