"""Headers in which clients send keys, tokens and cookies, in lower case."""

# The headers in which the gateway looks for a key or a token.
AUTHORIZATION, API_KEY = b"authorization", b"x-api-key"
# No engine gets one of these, and none can be the header by which a proxy names a tenant.
CREDENTIAL_HEADERS = (AUTHORIZATION, b"proxy-authorization", API_KEY, b"api-key", b"cookie")
