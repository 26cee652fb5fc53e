"""An OIDC issuer on the loopback interface, whose documents a test can change."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.support.http_server import served

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
AUDIENCE = "penstock"


@cache
def rsa_key(bits: int = 2048, number: int = 0) -> rsa.RSAPrivateKey:
    """An RSA key, which takes a while to make. number: tells several keys apart."""
    return rsa.generate_private_key(65537, bits)


def jwk(key: PrivateKey, key_id: str, **fields: Any) -> dict[str, Any]:
    """The public half of a key in the form of a key set."""
    algorithm = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
    }
    form = next(
        (each for kind, each in algorithm.items() if isinstance(key, kind)),
        jwt.algorithms.OKPAlgorithm,
    )
    public = form.to_jwk(key.public_key(), as_dict=True)
    return {**public, "kid": key_id, "use": "sig", **fields}


@dataclass
class OidcIssuer:
    """The issuer. keys: published ones, by `kid`. requests: paths that were asked for, in order.

    respond: answers instead of the documents. url: as in `iss`.
    """

    url: str = ""
    keys: dict[str, PrivateKey] = field(
        default_factory=lambda: {"one": ed25519.Ed25519PrivateKey.generate()}
    )
    requests: list[str] = field(default_factory=list)
    respond: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None

    def token(
        self, key_id: str = "one", *, headers: dict[str, Any] | None = None, **claims: Any
    ) -> bytes:
        """A signed token that is valid for ten minutes. claims: None leaves one out."""
        now_s = int(time.time())
        said = {"iss": self.url, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 600, **claims}
        said = {name: value for name, value in said.items() if value is not None}
        return sign(said, self.keys[key_id], {"kid": key_id, **(headers or {})})

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        if self.respond is not None:
            return await self.respond(request)
        if request.path == "/keys":
            return web.json_response(
                {"keys": [jwk(key, key_id) for key_id, key in self.keys.items()]}
            )
        document = {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        return web.json_response(document)


def sign(
    claims: dict[str, Any], key: PrivateKey, headers: dict[str, Any], algorithm: str = ""
) -> bytes:
    """A token. algorithm: empty for the usual one of the key's type."""
    if not algorithm:
        algorithm = "EdDSA"
        if isinstance(key, rsa.RSAPrivateKey):
            algorithm = "RS256"
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            algorithm = {"secp256r1": "ES256", "secp384r1": "ES384"}[key.curve.name]
    headers = {name: value for name, value in headers.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers).encode()


@asynccontextmanager
async def running_issuer() -> AsyncIterator[OidcIssuer]:
    """Serve an issuer while the block runs."""
    issuer = OidcIssuer()
    app = web.Application()
    app.router.add_get("/{path:.*}", issuer.answer)
    async with served(app) as address:
        issuer.url = f"http://{address}"
        yield issuer


def unsigned(claims: dict[str, Any], header: dict[str, Any]) -> bytes:
    """A token without a signature, of any header and claims."""
    encode = jwt.utils.base64url_encode
    return b".".join((*(encode(json.dumps(each).encode()) for each in (header, claims)), b""))
