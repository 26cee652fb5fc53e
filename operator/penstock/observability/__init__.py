"""Exports of Penstock: its metrics and log lines, and the files that are generated from their lists.

Pure: nothing here does I/O. Imports core, and the engine's lists of metrics and log fields.
"""
