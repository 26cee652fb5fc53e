"""Reads the keys with which an issuer signs its tokens: a JSON Web Key Set (RFC 7517)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

# Most keys of an issuer. Real ones have two to ten, also while they rotate.
MAX_KEYS = 100
# Bounds on RSA keys, in bits. Smaller ones are not safe (RFC 7518, 3.3); a check with 8192 takes 0.3 ms.
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192

# Algorithms by type of key, or by curve. All are asymmetric: with a key that checks tokens none can be made.
RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
CURVE_ALGORITHMS = {"secp256r1": ("ES256",), "secp384r1": ("ES384",)}
ED25519_ALGORITHMS = ("EdDSA",)

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


class KeySetError(Exception):
    """The keys of an issuer cannot be used. The message has nothing of their content."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key of an issuer, and the algorithms that a signature with it may have."""

    key: PublicKey
    algorithms: tuple[str, ...]


def read_keys(content: bytes) -> dict[str, SigningKey]:
    """Read the keys for signatures by their `kid`. Keys of other kinds, and those without one, are left out.

    Raises KeySetError.
    """
    try:
        entries = json.loads(content)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise KeySetError("is no JSON Web Key Set") from None
    if not isinstance(entries, list):
        raise KeySetError("is no JSON Web Key Set")
    if len(entries) > MAX_KEYS:
        raise KeySetError(f"has more than {MAX_KEYS} keys")
    read = {}
    for entry in entries:
        if isinstance(entry, dict) and (key := _signing_key(entry)) is not None:
            read[entry["kid"]] = key
    if not read:
        raise KeySetError("has no key with a `kid` for RS*, PS*, ES256, ES384 or EdDSA")
    return read


def _signing_key(entry: Mapping[str, Any]) -> SigningKey | None:
    key_id, is_private = entry.get("kid"), "d" in entry
    if not isinstance(key_id, str) or not key_id or entry.get("use", "sig") != "sig":
        return None
    if entry.get("kty") not in ("RSA", "EC", "OKP") or is_private:
        return None  # a published private key lets any reader sign
    try:
        key = PyJWK(dict(entry)).key
    except (PyJWTError, ValueError, TypeError, ArithmeticError):
        return None
    algorithms = _algorithms(key)
    if (named := entry.get("alg")) is not None:
        algorithms = tuple(each for each in algorithms if each == named)
    return SigningKey(key, algorithms) if algorithms else None


def _algorithms(key: object) -> tuple[str, ...]:
    match key:
        case RSAPublicKey() if MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS:
            return RSA_ALGORITHMS
        case EllipticCurvePublicKey():
            return CURVE_ALGORITHMS.get(key.curve.name, ())
        case Ed25519PublicKey():
            return ED25519_ALGORITHMS
        case _:
            return ()
