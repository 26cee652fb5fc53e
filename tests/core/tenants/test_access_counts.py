"""Numbers of tenants that may use a model name."""

import pytest

from penstock.core.tenants.access_counts import AccessCount, AccessCounts
from penstock.core.tenants.tenant import Access, Tenant

ONE = Tenant("one", 1, access=(Access("a", frozenset({"chat"})),))
TWICE = Tenant(
    "twice", 1, access=(Access("a", frozenset({"chat", "sql"})), Access("a"), Access("b"))
)
ROUTE = Tenant(
    "route", 1, access=(Access("a", frozenset({"embed"}), frozenset({"/v1/embeddings"})),)
)
NOTHING = Tenant("nothing", 1)


@pytest.mark.parametrize(
    ("namespace", "model_name", "allowed"),
    [("a", "chat", 2), ("a", "sql", 1), ("a", "embed", 2), ("b", "chat", 1), ("c", "chat", 0)],
)
def test_a_tenant_counts_once_where_it_may_use_the_name(
    namespace: str, model_name: str, allowed: int
) -> None:
    counts = AccessCounts([ONE, TWICE, ROUTE, NOTHING])
    assert counts.count(namespace, model_name) == AccessCount(allowed, has_tenants=True)


def test_without_tenants() -> None:
    assert AccessCounts([]).count("a", "chat") == AccessCount(0, has_tenants=False)
