"""Access of tenants to models and routes."""

import pytest

from penstock.core.tenants.tenant import Access, Tenant

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"


@pytest.mark.parametrize(
    ("access", "request_", "is_allowed"),
    [
        ((), ("a", "chat", CHAT), False),
        ((Access("a"),), ("a", "chat", CHAT), True),
        ((Access("a"),), ("b", "chat", CHAT), False),
        ((Access("a", frozenset({"sql"})),), ("a", "chat", CHAT), False),
        ((Access("a", frozenset({"sql"})),), ("a", "sql", CHAT), True),
        ((Access("a", frozenset(), frozenset({EMBEDDINGS})),), ("a", "chat", CHAT), False),
        ((Access("a", frozenset({"sql"})), Access("b")), ("b", "chat", CHAT), True),
        (
            (Access("a", frozenset({"sql"})), Access("a", frozenset(), frozenset({EMBEDDINGS}))),
            ("a", "chat", CHAT),
            False,
        ),
    ],
)
def test_a_tenant_may_use_what_one_of_its_entries_allows(
    access: tuple[Access, ...], request_: tuple[str, str, str], is_allowed: bool
) -> None:
    assert Tenant("acme", 1, access=access).may_use(*request_) is is_allowed
