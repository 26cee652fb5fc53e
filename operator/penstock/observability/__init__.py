"""What Penstock exports and how it is watched: metrics, and what is generated from their list.

Pure: nothing here does I/O. Imports core, and the engine's list of metrics.
"""
