"""Origins of web pages that may use a gateway (CORS)."""

ANY_ORIGIN = "*"
# Scheme, host and port, as browsers send them in the header `Origin`. Also the pattern of the chart's values.
ORIGIN_PATTERN = r"^(\*|https?://[^/?#@, ]+)$"
