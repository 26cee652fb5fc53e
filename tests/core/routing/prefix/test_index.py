"""The index of prompts that engines have cached."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.routing.prefix import index as module
from penstock.core.routing.prefix.index import LEAST_HORIZON, PrefixIndex
from penstock.core.routing.prefix.prompt_prefix import PromptPrefix, hash_text

KB = 1024


def prompt(*parts, size=KB):
    """A prompt of named parts of one size."""
    return hash_text(b"".join(part.encode() * (size // len(part)) for part in parts))


def send(index, pod, prefix):
    index.add(pod, prefix, prefix.length - index.overlap(pod, prefix))


def test_an_engine_has_what_was_sent_there():
    index = PrefixIndex()
    send(index, "a", prompt("s", "1"))
    send(index, "b", prompt("s", "2"))
    asked = prompt("s", "1", "3")
    assert [index.overlap(pod, asked) for pod in "abc"] == [2 * KB, KB, 0]
    assert index.overlaps(asked) == {"a": 2 * KB, "b": KB}
    assert index.overlaps(prompt("x")) == index.overlaps(hash_text(b"")) == {}
    index.check()


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.lists(st.sampled_from("xyz"), min_size=1, max_size=6)
        ),
        max_size=30,
    ),
    st.lists(st.sampled_from("xyz"), max_size=6),
)
def test_overlaps_are_those_of_a_plain_search(sent, asked):
    index = PrefixIndex()
    for pod, parts in sent:
        send(index, pod, prompt(*parts))
    wanted = prompt(*asked)
    for pod in "abcd":
        plain = 0
        for of, parts in sent:
            hashes = set(prompt(*parts).hashes) if of == pod else set()
            plain = max([plain, *(e for h, e in zip(*wanted[:2], strict=True) if h in hashes)])
        assert index.overlap(pod, wanted) == plain
    index.check()


def test_an_engine_that_is_gone_has_nothing_and_its_place_is_used_again():
    index = PrefixIndex()
    for pod in "abc":
        send(index, pod, prompt("s"))
    index.keep_only({"a", "c"})
    assert [index.overlap(pod, prompt("s")) for pod in "abc"] == [KB, 0, KB]
    send(index, "d", prompt("t"))
    assert index.overlaps(prompt("s")).keys() == {"a", "c"}
    index.check()


def test_the_number_of_entries_is_bounded_for_each_engine():
    index = PrefixIndex(max_entries=40)
    for number in range(50):
        send(index, "ab"[number % 2], prompt(f"{number:04}", size=4 * KB))
        assert len(index) <= 40 + 16
    send(index, "a", prompt("0048", size=4 * KB))
    assert index.overlap("a", prompt("0048", size=4 * KB)) == 4 * KB
    assert index.overlap("a", prompt("0002", size=4 * KB)) == 0
    index.check()


def test_one_engine_cannot_take_the_room_of_all(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTRIES_OF_ENGINE", 20)
    index = PrefixIndex()
    for number in range(50):
        send(index, "a", prompt(f"{number:04}", size=4 * KB))
    assert len(index) <= 20


def fill(index, pod, kilobytes, name="f"):
    for number in range(kilobytes // 4):
        send(index, pod, prompt(f"{name}{number:03}", size=4 * KB))


def test_a_miss_shows_how_much_an_engine_keeps():
    """The index forgets all beginnings that were used before the one that was missed."""
    index = PrefixIndex()
    old, asked = prompt("o", size=4 * KB), prompt("a", size=4 * KB)
    send(index, "p", old)
    send(index, "p", asked)
    fill(index, "p", 256)
    age = index.age("p", asked, 4 * KB)
    assert age == 256 * KB
    index.observe("p", age, 0.0)
    send(index, "p", prompt("n"))
    assert index.overlap("p", old) == index.overlap("p", asked) == 0
    assert index.overlap("p", prompt("f020", size=4 * KB)) == 4 * KB
    index.check()


def test_one_wrong_miss_forgets_at_most_half():
    """An engine may have been about to compute what two requests asked for."""
    index = PrefixIndex()
    fill(index, "p", 512)
    index.observe("p", 400.0 * KB, 0.0)
    fill(index, "p", 512, "g")
    index.observe("p", 0.0, 0.0)
    send(index, "p", prompt("n"))
    assert index.overlap("p", prompt("g100", size=4 * KB)) == 4 * KB


def test_hits_extend_what_an_engine_is_thought_to_keep():
    index = PrefixIndex()
    fill(index, "p", 64)
    index.observe("p", 32.0 * KB, 0.1)
    kept = prompt("k", size=4 * KB)
    for _ in range(40):
        send(index, "p", kept)
        fill(index, "p", 16, "x")
        index.observe("p", 30.0 * KB, 1.0)
    send(index, "p", kept)
    fill(index, "p", 44, "y")
    assert index.overlap("p", kept) == 4 * KB


@pytest.mark.parametrize("share", [0.0, 0.7, 1.0])
def test_answers_of_engines_without_entries_change_nothing(share):
    index = PrefixIndex()
    index.observe("p", 5.0, share)
    assert index.age("p", PromptPrefix(), 0) is None


def test_an_engine_without_a_cache_is_given_nothing_for_long():
    index = PrefixIndex()
    for number in range(200):
        send(index, "p", prompt(f"{number:04}", size=4 * KB))
        index.observe("p", LEAST_HORIZON / 2, 0.0)
    assert len(index) < 99
