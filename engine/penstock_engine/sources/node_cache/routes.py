"""Paths and times that the server of a node's cache and its clients share."""

FETCH_PATH, HOLD_PATH, HEALTH_PATH = "/v1/fetch", "/v1/hold", "/health"
# Time between two lines of an answer, in seconds: progress of a fetch, and heartbeats of a hold.
PROGRESS_S, HEARTBEAT_S = 1.0, 5.0
# Time without a line after which a client takes the server for dead, in seconds: six heartbeats are missing.
SILENCE_S = 30.0
