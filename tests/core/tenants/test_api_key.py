"""API keys: their form, what is stored of them, and what verifies them."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.tenants.api_key import (
    ID_BYTES,
    KEY_CHARACTERS,
    NO_KEY,
    SECRET_BYTES,
    decode_stored_key,
    make_api_key,
    parse_api_key,
    parse_lifetime_s,
    store_key,
)

SALT = bytes(range(16))
KEY = make_api_key(bytes(range(ID_BYTES + SECRET_BYTES)))


@given(st.binary(min_size=ID_BYTES + SECRET_BYTES, max_size=ID_BYTES + SECRET_BYTES))
def test_a_key_is_read_as_it_was_made(random_bytes):
    key = make_api_key(random_bytes)
    assert parse_api_key(key.text) == key
    assert len(key.text) == KEY_CHARACTERS == 60


@given(st.text(max_size=80))
def test_other_texts_are_no_keys(text):
    assert parse_api_key(text) is None


@pytest.mark.parametrize(
    "text",
    [
        KEY.text.upper(), KEY.text + "\n", " " + KEY.text[1:], KEY.text[:-1], KEY.text + "A",
        KEY.text.replace("psk_", "PSK_"), KEY.text[:-1] + "=", KEY.text[:-1] + "\u0661", "", "psk_",
        KEY.text[:4] + "1" + KEY.text[5:], KEY.text[:16] + "-" + KEY.text[17:],
    ],
)  # fmt: skip
def test_a_key_has_one_spelling(text):
    assert parse_api_key(text) is None


def test_stored_key_verifies_its_secret_alone():
    stored = store_key(KEY, SALT, "ci", 1_000.0, 2_000.0)
    again = decode_stored_key(KEY.id, stored.encode().encode())
    assert again == stored
    assert again.hash.matches(KEY.secret)
    assert not again.hash.matches(KEY.secret[:-1] + "A")
    assert not again.hash.matches("")
    assert not NO_KEY.matches(KEY.secret)
    assert store_key(KEY, bytes(16), "ci", 1_000.0).hash.digest != stored.hash.digest


def test_neither_the_entry_nor_texts_have_the_secret():
    stored = store_key(KEY, SALT, "ci", 0.0)
    assert KEY.secret not in stored.encode() + repr(KEY) + repr(stored) + f"{KEY}"
    assert stored.hash.expires_s == math.inf
    assert json.loads(stored.encode()).keys() == {"salt", "hash", "name", "created"}


@pytest.mark.parametrize(("lifetime_s", "entry"), [(math.inf, None), (86_400.0, 86_400)])
def test_an_entry_keeps_the_lifetime_of_a_key_that_ends_earlier(lifetime_s, entry):
    made = store_key(KEY, SALT, "ci", 1_000.0, 1_000.0 + lifetime_s)
    ending = replace(made, hash=replace(made.hash, expires_s=2_000.0))
    assert json.loads(ending.encode())["lifetime_s"] == entry
    assert decode_stored_key(KEY.id, ending.encode().encode()) == ending
    assert ending.lifetime_s == lifetime_s


@pytest.mark.parametrize(
    "entry",
    [
        b"", b"{}", b"[]", b"null", b"5", b"\xff", b"[" * 5000, b'{"salt": 1, "hash": 2, "created": 3}',
        b'{"salt": "", "hash": "", "created": "2026-01-01T00:00:00Z"}',
        b'{"salt": "%s", "hash": "%s", "created": "x"}' % (b"00" * 16, b"00" * 32),
        b'{"salt": "%s", "hash": "%s", "created": "2026-01-01T00:00:00Z", "lifetime_s": []}'
        % (b"00" * 16, b"00" * 32),
        b'{"salt": "%s", "hash": "%s", "created": "2026-01-01T00:00:00Z", "expires": 1}'
        % (b"00" * 16, b"00" * 32),
    ],
)  # fmt: skip
def test_entries_that_are_no_keys(entry):
    with pytest.raises(ValueError, match=f"the entry {KEY.id} is no API key") as error:
        decode_stored_key(KEY.id, entry)
    assert "salt" not in str(error.value)


def test_an_entry_needs_the_name_of_an_id():
    entry = store_key(KEY, SALT, "ci", 0.0).encode().encode()
    with pytest.raises(ValueError, match="the entry other is no API key"):
        decode_stored_key("other", entry)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90d", 7_776_000.0), ("12h", 43_200.0), ("1h30m", 5_400.0)]
)
def test_lifetimes(text, seconds):
    assert parse_lifetime_s(text) == seconds


@pytest.mark.parametrize("text", ["0d", "0s", "-1d", "1w", "d", "", "90 d", "\u0669d"])
def test_texts_that_are_no_lifetimes(text):
    with pytest.raises(ValueError, match=r"lifetime|duration"):
        parse_lifetime_s(text)
