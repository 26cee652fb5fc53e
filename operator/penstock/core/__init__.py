"""Pure decisions: data in, data out. `now` and `draw` are arguments; nothing here does I/O or reads a clock.

docs/reference/packages.md lists the packages by layer.
"""
