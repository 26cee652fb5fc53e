"""The token that gateways and the batch server share, and the header that names a tenant."""

from dataclasses import dataclass

# The token is a bearer token in both directions. With it this header names the tenant of a request; it is
# empty while the cluster has no Tenant. Of others the header is ignored.
TENANT_HEADER = "x-penstock-tenant"
# Bytes of a token that cannot be guessed: 32 random bytes, or their text.
MIN_TOKEN_BYTES = 32


@dataclass(slots=True)
class SharedToken:
    """The token that holds now. It is another one after its file was replaced."""

    value: bytes

    @property
    def authorization(self) -> str:
        """Value of the header Authorization of a request with this token."""
        return f"Bearer {self.value.decode()}"

    def headers(self, tenant: str) -> dict[str, str]:
        """The headers that authenticate a request on behalf of a tenant. tenant: its name, or empty."""
        return {"Authorization": self.authorization, TENANT_HEADER: tenant}


def parse_token(content: bytes) -> bytes:
    """The token of a file. Raises ValueError."""
    token = content.strip()
    if len(token) < MIN_TOKEN_BYTES:
        raise ValueError(f"must have a token of {MIN_TOKEN_BYTES} bytes or more")
    if not token.isascii() or not token.decode("ascii").isprintable() or b" " in token:
        raise ValueError("must have a token of printable ASCII characters without blanks")
    return token
