"""Schema of a tenant's identities: how its clients prove that they belong to it."""

from typing import Annotated, Any, Literal

from pydantic import Field

from penstock.api.schema.defaults import optional
from penstock.api.schema.names import PART_NAME
from penstock.api.schema.references import ObjectName
from penstock.api.schema.rules import Model, Obeys, Rule, matches
from penstock.core.tenants.credential_headers import CREDENTIAL_HEADERS

_HOST = r"(https://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|http://(localhost|127[.]0[.]0[.]1))(:[0-9]{1,5})?"
_PATH = r"(/[-A-Za-z0-9._~%/]*)?"
_ISSUER = Obeys(
    matches(
        f"^{_HOST}{_PATH}$",
        "must be https://HOST[:PORT][/PATH], without a user or a query; http only for localhost",
    )
)
_KEYS_URL = Obeys(
    matches(
        f"^{_HOST}{_PATH}([?][-A-Za-z0-9._~%=&]*)?$",
        "must be https://HOST[:PORT][/PATH][?QUERY], without a user; http only for localhost",
    )
)
_is_credential = matches(f"^(?i:{b'|'.join(CREDENTIAL_HEADERS).decode()})$", "")
_HEADER_NAME = Obeys(
    matches(r"^[A-Za-z0-9!#$%&*+.^_|~-]+$", "must be the name of an HTTP header, such as x-tenant"),
    Rule(
        f"!({_is_credential.cel})",
        lambda name: not _is_credential.holds(name),
        "must not be a header with credentials, such as authorization",
    ),
)


class ApiKeyIdentity(Model):
    """API keys of `penstock keys`."""

    secret_name: ObjectName = Field(
        description="Name of the Secret with their hashes in the namespace of keys, such as acme-keys.",
        min_length=1,
        max_length=253,
    )


class ServiceAccountIdentity(Model):
    """Pods that send the token of a ServiceAccount."""

    namespace: ObjectName = Field(
        description="Namespace of the ServiceAccount, such as team-a.", min_length=1, max_length=63
    )
    name: ObjectName = Field(description="Its name, such as batch.", min_length=1, max_length=253)


class JwtIdentity(Model):
    """Bearer tokens of an OpenID Connect issuer."""

    issuer: Annotated[str, _ISSUER] = Field(
        description="URL of the issuer, as in the claim `iss`, such as https://login.example.com.",
        min_length=1,
        max_length=512,
    )
    audience: str = Field(
        description="Audience that a token must be for (`aud`), such as penstock.",
        min_length=1,
        max_length=256,
    )
    claim: str = Field(
        description="Claim of the token that tells the tenant, such as org.",
        min_length=1,
        max_length=256,
    )
    value: str = Field(
        description="Value of the claim, or one of its values, such as acme.",
        min_length=1,
        max_length=256,
    )
    jwks_url: Annotated[str | None, _KEYS_URL] = optional(
        "URL of the issuer's public keys. Default: as the issuer's discovery document says.",
        alias="jwksURL",
        min_length=1,
        max_length=512,
    )


class HeaderIdentity(Model):
    """A header of the proxies that the gateway trusts. Those of other clients are ignored."""

    name: Annotated[str, _HEADER_NAME] = Field(
        description="Name of the header, such as x-tenant. Upper and lower case are the same.",
        min_length=1,
        max_length=64,
    )
    value: str = Field(
        description="Value of the header, such as acme.", min_length=1, max_length=256
    )


def _only_with(member: str, attribute: str, identity_type: str) -> Rule:
    """Rule that a member of the union is set if, and only if, it is that of the type."""

    def holds(identity: Any) -> bool:
        return bool((getattr(identity, attribute) is not None) == (identity.type == identity_type))

    return Rule(
        f"has(self.{member}) == (self.type == '{identity_type}')",
        holds,
        f"{member} must be set if, and only if, type is {identity_type}",
    )


class Identity(Model):
    """A proof that a client belongs to the tenant."""

    RULES = (
        _only_with("apiKey", "api_key", "APIKey"),
        _only_with("serviceAccount", "service_account", "ServiceAccount"),
        _only_with("jwt", "jwt", "JWT"),
        _only_with("header", "header", "Header"),
    )

    name: Annotated[str, PART_NAME] = Field(
        description="Name of the identity, for logs and patches, such as keys.",
        min_length=1,
        max_length=63,
    )
    type: Literal["APIKey", "ServiceAccount", "JWT", "Header"] = Field(
        description=(
            "APIKey: a key of `penstock keys`. ServiceAccount: a token of a pod. JWT: a token of an OpenID "
            "Connect issuer. Header: a header of a trusted proxy."
        )
    )
    api_key: ApiKeyIdentity | None = optional("Keys of type APIKey.")
    service_account: ServiceAccountIdentity | None = optional("Account of type ServiceAccount.")
    jwt: JwtIdentity | None = optional("Tokens of type JWT.")
    header: HeaderIdentity | None = optional("Header of type Header.")
