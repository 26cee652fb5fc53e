"""Which addresses count as one client."""

import pytest

from penstock.gateway.limits.client_network import client_network


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.2", "10.0.0.2"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        ("2001:db8:0:1:ffff:ffff:ffff:ffff", "2001:db8:0:1::/64"),
        ("2001:db8:0:2::1", "2001:db8:0:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
    ],
)
def test_addresses_of_one_network_are_one_client(address, network):
    assert client_network(address) == network
