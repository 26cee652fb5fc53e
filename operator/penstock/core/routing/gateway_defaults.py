"""Defaults of the gateway's settings that other processes follow."""

# Most bytes in the body of a request. A line of a batch is one body.
MAX_BODY_BYTES = 4 << 20
# Time limit of a request from its end to the end of the response, in seconds.
TOTAL_TIMEOUT_S = 1800.0
