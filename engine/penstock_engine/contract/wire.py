"""HTTP headers and frames of event streams that the engine shares with gateways, each defined only here."""

import re

REQUEST_ID_HEADER = "x-request-id"
# Accepted request ids. The gateway, or an engine without one, replaces any other.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
# The client's timeout for the whole response, in seconds, with decimals.
TIMEOUT_HEADER = "x-request-timeout-s"
# The same timeout as set by Envoy and gateways built on it, in milliseconds.
ENVOY_TIMEOUT_HEADER = "x-envoy-expected-rq-timeout-ms"
# Maximum time per output token while prompts of other requests are computed, in seconds. A gateway sets it
# to the service's objective.
TPOT_HEADER = "x-penstock-tpot-s"

# Ids of stored responses: random bytes, and the key of the engine's pod where a gateway has given one. Both
# are written in hexadecimal.
RESPONSE_ID_BYTES, RESPONSE_KEY_BYTES = 24, 8
RESPONSE_ID = re.compile(
    rf"resp_[0-9a-f]{{{2 * RESPONSE_ID_BYTES}}}(?P<key>[0-9a-f]{{{2 * RESPONSE_KEY_BYTES}}})?"
)

SSE_PREFIX = b"data: "
SSE_END = b"\n\n"
SSE_DONE = b"data: [DONE]\n\n"
