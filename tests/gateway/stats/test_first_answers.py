"""The first answers of session-affinity keys."""

from penstock.gateway.stats.first_answers import MAX_KEYS, FirstAnswers


def test_answer_of_a_key_is_the_first_one_once():
    answers = FirstAnswers()
    assert [answers.add(key) for key in (b"a", b"b", b"a", b"b")] == [True, True, False, False]


def test_oldest_keys_are_forgotten():
    answers = FirstAnswers()
    keys = [str(number).encode() for number in range(MAX_KEYS + 1)]
    assert all(answers.add(key) for key in keys)
    assert not answers.add(keys[1])
    assert answers.add(keys[0])
