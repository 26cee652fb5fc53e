"""What Penstock exports and how it is watched: metrics, log lines, and what is made from their lists.

Pure: nothing here does I/O. Imports core, and the engine's lists of metrics and log fields.
"""
