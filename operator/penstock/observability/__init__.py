"""Lists of Penstock's metrics and log fields, and the alerts, dashboards and pages generated from them.

Pure: nothing here does I/O. Imports core, and the engine's lists of metrics and log fields.
"""
