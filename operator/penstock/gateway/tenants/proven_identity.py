"""The outcome of a check of a client's proof: the identity of a tenant, or why there is none."""

from dataclasses import dataclass
from enum import Enum

from penstock.gateway.tenants.unverified_token import MAX_TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class ProvenIdentity:
    """The identity that a client has proved. tenant: name of its Tenant. name: of the identity in it."""

    tenant: str
    name: str


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A token that proves an identity. expires_s: when it has to be checked again, since the epoch."""

    identity: ProvenIdentity
    expires_s: float


class TokenRefusal(Enum):
    """Why a bearer token proves no identity; the value completes the sentence `the token …`."""

    TOO_LONG = f"is longer than {MAX_TOKEN_BYTES >> 10} KiB"
    MALFORMED = "is neither an API key nor a JSON Web Token"
    UNKNOWN_ISSUER = "is of no issuer and no ServiceAccount that a Tenant names"
    NOT_ACCEPTED = "is not accepted by its issuer's keys, or by the API server"
    EXPIRED = "has expired; send a new one"
    NOT_YET_VALID = "is not valid yet; check the clock of its issuer"
    NO_IDENTITY = "is valid, but no Tenant has an identity with its audience and claims"
