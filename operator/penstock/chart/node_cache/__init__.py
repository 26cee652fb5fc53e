"""The cache of models on each node: a DaemonSet whose pods alone write to a folder of their node."""
