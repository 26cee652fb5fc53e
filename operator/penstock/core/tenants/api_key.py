"""API keys: their form, and what is stored of each.

A key is psk_ID_SECRET. Its id is no secret: logs and commands name the key by it. Its secret has 256 random
bits, of which only a salted SHA-256 is stored. A slow hash, such as of passwords, would add nothing: nobody
can try 2^256 secrets, and it would cost each request more than the gateway's whole work.
"""

import base64
import hashlib
import hmac
import json
import math
import re
from dataclasses import dataclass

from penstock.core.formats.quantity import parse_duration_s
from penstock.core.formats.timestamps import parse_timestamp, timestamp

PREFIX = "psk_"
# Namespace of the Secrets that have the hashes of keys, and their type. Nothing else is in that namespace.
KEYS_NAMESPACE = "penstock-keys"
SECRET_TYPE = "serving.penstock.dev/api-keys"  # noqa: S105 - no password
# 60 random bits: among a million keys the chance that two have one id is 1 in 2 million.
ID_CHARACTERS, ID_BYTES = 12, 8
# The secret as text is base64 without padding.
SECRET_BYTES, SECRET_CHARACTERS, SALT_BYTES = 32, 43, 16
KEY_ID = re.compile(rf"[a-z2-7]{{{ID_CHARACTERS}}}")
KEY_PATTERN = re.compile(rf"{PREFIX}({KEY_ID.pattern})_([A-Za-z0-9_-]{{{SECRET_CHARACTERS}}})")
KEY_CHARACTERS = len(PREFIX) + ID_CHARACTERS + 1 + SECRET_CHARACTERS
# Bound on the name that a user gives a key. It is stored with each key, and a Secret has 1 MiB.
MAX_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key. Its repr has no secret."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"ApiKey({self.id})"

    @property
    def text(self) -> str:
        """The key as its client sends it."""
        return f"{PREFIX}{self.id}_{self.secret}"


def parse_api_key(text: str) -> ApiKey | None:
    """Read a key; None if the text has another form."""
    if len(text) != KEY_CHARACTERS or (found := KEY_PATTERN.fullmatch(text)) is None:
        return None
    return ApiKey(found[1], found[2])


def make_api_key(random_bytes: bytes) -> ApiKey:
    """Make a key of ID_BYTES + SECRET_BYTES random bytes."""
    id_bytes, secret = random_bytes[:ID_BYTES], random_bytes[ID_BYTES:]
    return ApiKey(
        base64.b32encode(id_bytes).decode().lower()[:ID_CHARACTERS],
        base64.urlsafe_b64encode(secret).decode().rstrip("="),
    )


@dataclass(frozen=True, slots=True)
class KeyHash:
    """Verifies a key. digest: salt, then the hash of salt and secret. expires_s: Unix time."""

    digest: bytes
    expires_s: float = math.inf

    def matches(self, secret: str) -> bool:
        """Whether it is of this secret. The time that it takes tells nothing about either."""
        return hmac.compare_digest(_digest(self.digest[:SALT_BYTES], secret), self.digest)


# The hash that a key with an unknown id is compared with, so that its refusal takes as long as any other.
NO_KEY = KeyHash(bytes(SALT_BYTES + hashlib.sha256().digest_size), -math.inf)


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key as a Secret has it: its hash, and what people know it by. Times are Unix times.

    lifetime_s: what it was created with, and what its successor gets. A rotation changes only its end.
    """

    id: str
    hash: KeyHash
    name: str
    created_s: float
    lifetime_s: float

    def encode(self) -> str:
        """The entry of the Secret for this key."""
        digest, expires_s = self.hash.digest, self.hash.expires_s
        fields: dict[str, str | int | None] = {
            "salt": digest[:SALT_BYTES].hex(),
            "hash": digest[SALT_BYTES:].hex(),
            "name": self.name,
            "created": timestamp(self.created_s),
        }
        if expires_s != math.inf:
            fields["expires"] = timestamp(expires_s)
        if self.lifetime_s != expires_s - self.created_s:
            fields["lifetime_s"] = None if self.lifetime_s == math.inf else round(self.lifetime_s)
        return json.dumps(fields)


def store_key(
    key: ApiKey, salt: bytes, name: str, created_s: float, expires_s: float = math.inf
) -> StoredKey:
    """Make the entry of a new key. salt: SALT_BYTES random bytes."""
    key_hash = KeyHash(_digest(salt, key.secret), expires_s)
    return StoredKey(key.id, key_hash, name, created_s, expires_s - created_s)


def decode_stored_key(key_id: str, entry: bytes) -> StoredKey:
    """Read an entry of a Secret. Raises ValueError, without the entry in its message."""
    try:
        fields = json.loads(entry)
        digest = bytes.fromhex(fields["salt"]) + bytes.fromhex(fields["hash"])
        name, created_s = str(fields.get("name", "")), parse_timestamp(fields["created"])
        expires_s = parse_timestamp(fields["expires"]) if "expires" in fields else math.inf
        lifetime_s = fields.get("lifetime_s", expires_s - created_s)
        lifetime_s = math.inf if lifetime_s is None else float(lifetime_s)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        digest = b""
    if KEY_ID.fullmatch(key_id) is None or len(digest) != len(NO_KEY.digest):
        raise ValueError(f"the entry {key_id} is no API key: revoke it, and create another one")
    return StoredKey(key_id, KeyHash(digest, expires_s), name, created_s, lifetime_s)


def parse_lifetime_s(text: str) -> float:
    """Parse a lifetime to seconds: days, such as 90d, or a duration, such as 12h. Raises ValueError."""
    days = re.fullmatch(r"([0-9]{1,5})d", text, re.ASCII)
    seconds = 86_400.0 * int(days[1]) if days else parse_duration_s(text)
    if seconds <= 0:
        raise ValueError(f"{text} is no lifetime: give more than zero, such as 90d or 12h")
    return seconds


def _digest(salt: bytes, secret: str) -> bytes:
    return salt + hashlib.sha256(salt + secret.encode()).digest()
