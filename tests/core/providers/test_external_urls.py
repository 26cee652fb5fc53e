"""URLs that external models may have, and addresses that are never connected to."""

import pytest

from penstock.core.providers.external_urls import (
    is_allowed_url,
    is_forbidden_address,
    parse_external_url,
)

ALLOWED = tuple(
    map(
        parse_external_url,
        ("https://api.example.com/v1", "http://127.0.0.1:8000", "https://b.example.com"),
    )
)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://api.example.com/v1", True),
        ("https://API.example.com:443/v1/", True),
        ("https://api.example.com/v1/more", True),
        ("https://api.example.com/v10", False),
        ("https://api.example.com", False),
        ("http://api.example.com/v1", False),
        ("https://api.example.com:8443/v1", False),
        ("https://api.example.com.evil.test/v1", False),
        ("https://api.example.com@evil.test/v1", False),
        ("https://evil.test/?https://api.example.com/v1", False),
        ("https://api.example.com/v1/../admin", False),
        ("https://api.example.com/%76%31", False),
        ("https://b.example.com/anything", True),
        ("http://127.0.0.1:8000", True),
        ("http://127.0.0.1:8001", False),
        ("ftp://b.example.com", False),
        ("https://b.example.com\n", False),
        ("", False),
    ],
)
def test_urls_begin_with_an_allowed_one(url: str, expected: bool) -> None:
    assert is_allowed_url(url, ALLOWED) is expected


def test_nothing_is_allowed_by_default() -> None:
    assert not is_allowed_url("https://api.example.com", ())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("169.254.169.254", True),
        ("169.254.1.1", True),
        ("fe80::1%eth0", True),
        ("fd00:ec2::254", True),
        ("100.100.100.200", True),
        ("168.63.129.16", True),
        ("192.0.0.192", True),
        ("fd20:ce::254", True),
        ("::ffff:169.254.169.254", True),
        ("64:ff9b::a9fe:a9fe", True),
        ("2002:a9fe:a9fe::1", True),
        ("0.0.0.0", True),
        ("::", True),
        ("224.0.0.1", True),
        ("no address", True),
        ("10.1.2.3", False),
        ("127.0.0.1", False),
        ("::1", False),
        ("93.184.216.34", False),
    ],
)
def test_addresses_of_credentials_are_forbidden(address: str, expected: bool) -> None:
    assert is_forbidden_address(address) is expected
