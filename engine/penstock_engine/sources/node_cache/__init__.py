"""The cache of models of a node: a server that alone writes a folder, and its clients in pods."""
