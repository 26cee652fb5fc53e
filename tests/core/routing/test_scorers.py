"""The choice of an engine by weighted scores.

A scorer over a new key of the request needs edits of two files; they are made in a copy of the package.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.edited_package import edited_package, run_program

from penstock.core.routing import scorers
from penstock.core.routing.pick import Endpoint
from penstock.core.routing.request_attributes import RequestAttributes
from penstock.core.routing.scorers import choose

A, B, C = (Endpoint(name, f"10.0.0.1:{n}", "r1") for n, name in enumerate("abc"))


def of_conversation(key):
    return RequestAttributes(user_key=None, conversation_key=key)


def cached_tokens(candidates):
    """A prefix cache: engine b holds 100 tokens of the conversation."""
    return [
        100 if (e.pod, candidates.request.conversation_key) == ("b", b"talk") else 0
        for e in candidates.engines
    ]


@given(
    st.lists(st.integers(0, 3) | st.floats(0, 1e12), min_size=1, max_size=9),
    st.floats(0, 1, exclude_max=True),
)
def test_without_further_scorers_one_of_the_least_loaded(tokens, draw):
    engines = [Endpoint(f"p{n}", f"10.0.0.1:{n}", "r1") for n in range(len(tokens))]
    least = [e for e, each in zip(engines, tokens, strict=True) if each == min(tokens)]
    assert choose(engines, tokens, draw, of_conversation(None)) == least[int(draw * len(least))]


@pytest.mark.parametrize(
    ("weight", "tokens", "key", "expected"),
    [
        (1.0, (0, 99, 0), b"talk", B),
        (1.0, (0, 101, 50), b"talk", A),
        (0.5, (0, 51, 50), b"talk", A),
        (2.0, (0, 199, 50), b"talk", B),
        (2.0, (1, 199, 0), b"other", C),
        (2.0, (1, 199, 0), None, C),
    ],
)
def test_scores_are_added_by_weight(monkeypatch, weight, tokens, key, expected):
    monkeypatch.setattr(scorers, "SCORERS", (*scorers.SCORERS, (weight, cached_tokens)))
    assert choose([A, B, C], tokens, 0.0, of_conversation(key)) == expected


@pytest.mark.parametrize(("draw", "expected"), [(0.0, A), (0.49, A), (0.5, B), (0.99, B)])
def test_the_draw_decides_between_equal_sums(monkeypatch, draw, expected):
    monkeypatch.setattr(scorers, "SCORERS", (*scorers.SCORERS, (1.0, cached_tokens)))
    assert choose([A, B, C], (0, 100, 1), draw, of_conversation(b"talk")) == expected


PREFER = '''

def score_first_message(candidates: Candidates) -> Sequence[float]:
    """Prefer one engine for all requests with the same first message."""
    key, pods = candidates.request.first_message_key, sorted(e.pod for e in candidates.engines)
    preferred = pods[int.from_bytes(key or b"") % len(pods)]
    return [1e9 * (engine.pod == preferred) for engine in candidates.engines]
'''
KEY_EDITS = {
    "core/routing/request_attributes.py": [
        ("    conversation_key: bytes | None\n", "    first_message_key: bytes | None\n"),
        (
            "conversation_key=_digest(opening)",
            ", first_message_key=_digest(json.dumps(beginning[:1]).encode()) if beginning else None",
        ),
    ],
    "core/routing/scorers.py": [
        ("    return [-tokens for tokens in candidates.tokens]\n", PREFER),
        ("((1.0, score_load),", " (1.0, score_first_message),"),
    ],
}
"""Text that is inserted, and after which text, by file: "A scorer" in CONTRIBUTING.md names these."""


@pytest.mark.slow
def test_a_key_is_a_field_and_is_in_force_in_gateway_and_simulator(tmp_path):
    rows = run_program(edited_package(tmp_path, KEY_EDITS), "tests.core.routing.new_key")
    assert rows == {"gateway": {"hotel": 1, "bank": 1}, "simulator": [1, 1, 1, 1]}
