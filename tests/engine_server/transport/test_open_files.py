"""Raises the soft limit of open files up to the need, or to the hard limit."""

import resource

import pytest

from penstock_engine.http.open_files import allow_open_files

INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "expected", "limits"),
    [
        (INFINITE, INFINITE, 500, []),
        (100, INFINITE, 500, [(500, INFINITE)]),
        (500, 999, 500, []),
        (100, 999, 500, [(500, 999)]),
        (100, 499, 499, [(499, 499)]),
        (100, 100, 100, [(100, 100)]),
    ],
)
def test_soft_limit_is_raised(monkeypatch, soft, hard, expected, limits):
    """Linux does not allow infinite limits."""
    made = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: made.append(wanted))
    assert allow_open_files(500) == expected
    assert made == limits
