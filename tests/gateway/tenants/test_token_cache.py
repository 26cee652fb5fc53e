"""The cache of checks of tokens."""

from penstock.gateway.tenants.token_cache import TokenCache


def test_entries_expire_and_the_least_recently_used_one_is_dropped() -> None:
    now_s = 10.0
    cache: TokenCache[str] = TokenCache(2, lambda: now_s)
    cache.put(b"a", "of a", 20.0)
    cache.put(b"b", "of b", 15.0)
    assert (cache.get(b"a"), cache.get(b"b"), cache.get(b"c")) == ("of a", "of b", None)
    now_s = 14.9
    assert cache.get(b"b") == "of b"
    now_s = 15.0
    assert (cache.get(b"a"), cache.get(b"b")) == ("of a", None)
    cache.put(b"b", "of b", 30.0)
    cache.get(b"a")
    cache.put(b"c", "of c", 30.0)
    assert (cache.get(b"a"), cache.get(b"b"), cache.get(b"c")) == ("of a", None, "of c")
    cache.clear()
    assert (cache.get(b"a"), cache.get(b"c")) == (None, None)
