"""The `penstock` command: a table of sub-commands, and a package for each group of them."""
