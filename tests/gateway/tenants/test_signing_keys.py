"""Which keys of an issuer's key set are used, and for which algorithms."""

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from jwt.algorithms import ECAlgorithm
from tests.support.oidc_issuer import jwk, rsa_key

from penstock.gateway.tenants.signing_keys import KeySetError, read_keys

RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
P256 = ec.generate_private_key(ec.SECP256R1())


def key_set(*entries: Any) -> bytes:
    return json.dumps({"keys": entries}).encode()


@pytest.mark.parametrize(
    ("entry", "algorithms"),
    [
        (jwk(rsa_key(), "a"), RSA),
        (jwk(rsa_key(), "a", alg="PS256"), ("PS256",)),
        (jwk(P256, "a"), ("ES256",)),
        (jwk(ec.generate_private_key(ec.SECP384R1()), "a"), ("ES384",)),
        (jwk(ed25519.Ed25519PrivateKey.generate(), "a"), ("EdDSA",)),
    ],
)
def test_the_type_of_a_key_decides_its_algorithms(
    entry: dict[str, Any], algorithms: tuple[str, ...]
) -> None:
    assert read_keys(key_set(entry))["a"].algorithms == algorithms


@pytest.mark.parametrize(
    "entry",
    [
        jwk(rsa_key(1024), "weak"),
        jwk(P256, "encryption", use="enc"),
        jwk(P256, "other", alg="ES384"),
        jwk(P256, "symmetric", alg="HS256"),
        jwk(ec.generate_private_key(ec.SECP521R1()), "curve"),
        {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
        {**ECAlgorithm.to_jwk(P256, as_dict=True), "kid": "private"},
        {name: value for name, value in jwk(P256, "").items() if name != "kid"},
        {"kty": "RSA", "kid": "broken", "n": "%", "e": "AQAB"},
        {"kty": "RSA", "kid": "zero", "n": "AA", "e": "AA"},
        {"kty": ["RSA"], "kid": "type"},
        jwk(P256, "x") | {"kid": 7},
        "no object",
    ],
)
def test_other_keys_are_left_out(entry: Any) -> None:
    assert list(read_keys(key_set(entry, jwk(P256, "good")))) == ["good"]
    with pytest.raises(KeySetError, match="no key"):
        read_keys(key_set(entry))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no JSON Web Key Set"),
        (b"[]", "no JSON Web Key Set"),
        (b"{}", "no JSON Web Key Set"),
        (b'{"keys": {}}', "no JSON Web Key Set"),
        (b"\xff", "no JSON Web Key Set"),
        (b"[" * 100_000, "no JSON Web Key Set"),
        (key_set(*[jwk(P256, "a")] * 101), "more than 100 keys"),
    ],
)
def test_other_documents_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(KeySetError, match=message):
        read_keys(content)
