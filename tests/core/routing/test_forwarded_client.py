"""Whose address counts for a request behind proxies."""

import re

import pytest

from penstock.core.routing.forwarded_client import (
    MAX_PROXIES,
    forwarded_client,
    parse_trusted_proxy,
)

TRUSTED = tuple(map(parse_trusted_proxy, ("10.0.0.0/8", "192.0.2.7", "2001:db8:aa::/48")))
PROXY = "10.0.0.1"


def address(peer, *values, trusted=TRUSTED):
    headers = [(b"host", b"x"), *((b"x-forwarded-for", value.encode()) for value in values)]
    return forwarded_client(peer, headers, trusted)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), PROXY),
        (("198.51.100.9",), "198.51.100.9"),
        (("203.0.113.5, 198.51.100.9",), "198.51.100.9"),  # the first one may be forged
        (("203.0.113.5, 198.51.100.9, 10.9.9.9",), "198.51.100.9"),
        (("203.0.113.5,198.51.100.9,192.0.2.7",), "198.51.100.9"),
        (("203.0.113.5", "198.51.100.9"), "198.51.100.9"),
        (("198.51.100.9", "10.9.9.9", "192.0.2.7"), "198.51.100.9"),
        (("10.9.9.9, 10.8.8.8",), "10.9.9.9"),  # all of them are proxies
        (("198.51.100.9:4711",), "198.51.100.9"),
        (("[2001:db8::5]:4711",), "2001:db8::5"),
        (("[2001:db8::5]",), "2001:db8::5"),
        (("2001:DB8:0::5",), "2001:db8::5"),
        (("fe80::5%eth0",), "fe80::5"),
        (("::ffff:198.51.100.9",), "198.51.100.9"),
        (("198.51.100.9, ::ffff:10.9.9.9",), "198.51.100.9"),
        (("198.51.100.9, [2001:db8:aa::1]:80",), "198.51.100.9"),
        ((" ,198.51.100.9 ,, \t",), "198.51.100.9"),
        (("198.51.100.9", ""), "198.51.100.9"),
    ],
)
def test_last_address_that_is_no_trusted_proxy(values, expected):
    assert address(PROXY, *values) == expected


@pytest.mark.parametrize(
    "garbage",
    [
        "unknown", "_hidden", "localhost", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "²:1", "\x7f",
        "[::1", "::1]", "[]", "[]:80", "[1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:123456", ":80", "%",
        '"1.2.3.4"', "for=1.2.3.4", "1.2.3.4;5.6.7.8", "x" * 30_000, "1" * 30_000, ":" * 30_000,
        "fe80::1%" + "x" * 1000,
    ],
)  # fmt: skip
def test_what_is_no_address_ends_the_search_at_the_proxy_that_added_it(garbage):
    assert address(PROXY, garbage) == PROXY
    assert address(PROXY, f"198.51.100.9, {garbage}") == PROXY
    assert address(PROXY, "198.51.100.9", garbage, "10.9.9.9") == "10.9.9.9"
    assert address(PROXY, f"{garbage}, 198.51.100.9") == "198.51.100.9"


@pytest.mark.parametrize("peer", ["198.51.100.1", "192.0.2.8", "2001:db8:ab::1", "11.0.0.1", ""])
def test_header_of_others_is_ignored(peer):
    assert address(peer, "203.0.113.5") == peer
    assert address(peer, "10.9.9.9") == peer


@pytest.mark.parametrize("peer", ["::ffff:10.0.0.1", "2001:db8:aa:1::5", "192.0.2.7"])
def test_trusted_peers(peer):
    assert address(peer, "203.0.113.5") == "203.0.113.5"


def test_without_trusted_proxies_the_header_is_ignored():
    assert address(PROXY, "203.0.113.5", trusted=()) == PROXY


def test_ten_thousand_entries_are_not_all_read():
    entries = ["198.51.100.9"] + [f"10.0.{n // 250}.{n % 250}" for n in range(10_000)]
    read = address(PROXY, ",".join(entries))
    assert read == entries[-MAX_PROXIES]
    assert address(PROXY, *entries) == entries[-MAX_PROXIES]
    assert address(PROXY, ",".join(entries[:MAX_PROXIES])) == "198.51.100.9"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("proxy", "'proxy' is no network; write an address with a prefix, such as 10.0.0.0/8"),
        (
            "10.0.0.0/33",
            "'10.0.0.0/33' is no network; write an address with a prefix, such as 10.0.0.0/8",
        ),
        ("10.0.0.1/8", "10.0.0.1/8 is an address within a network; write 10.0.0.0/8 for all of it"),
        ("0.0.0.0/0", "0.0.0.0/0 would trust every client; name the addresses of the proxies"),
        ("::/0", "::/0 would trust every client; name the addresses of the proxies"),
    ],
)
def test_networks_that_cannot_be_trusted(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_trusted_proxy(text)
