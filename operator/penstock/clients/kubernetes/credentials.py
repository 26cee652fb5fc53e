"""Reads when the credentials for the API server expire."""

import base64
import json
import ssl
from typing import Any


def expiry_times_s(configuration: Any) -> dict[str, float]:
    """Return the times since the epoch at which the CA and the token of a configuration expire.

    Leaves out credentials that are not set, cannot be read, or have no expiry. Of several CAs the
    first to expire counts.
    """
    found = {
        "ca": _ca_expiry_s(configuration.ssl_ca_cert),
        "token": _token_expiry_s(configuration.api_key.get("BearerToken", "")),
    }
    return {name: time_s for name, time_s in found.items() if time_s is not None}


def _ca_expiry_s(path: str | None) -> float | None:
    if not path:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
        ends = [cert["notAfter"] for cert in context.get_ca_certs()]
    except (OSError, KeyError):
        return None
    times_s = [ssl.cert_time_to_seconds(str(end)) for end in ends]
    return float(min(times_s, default=0)) or None


def _token_expiry_s(authorization: str) -> float | None:
    """Read the claim `exp` of a JSON web token, such as that of a service account."""
    _, _, token = authorization.rpartition(" ")
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None
