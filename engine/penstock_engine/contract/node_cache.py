"""Name of the socket at which the server of a node's cache listens."""

SOCKET_NAME = "node-cache.sock"  # in the folder of the cache
