"""The bound on requests of batches at an engine, which follows the time of its answers."""

from penstock.core.admission.batch_window import (
    MAX_BATCH_SEQUENCES,
    MAX_TIME_SHARE,
    BatchWindow,
)


def test_quick_answers_to_batches_raise_it_by_one_for_each_window() -> None:
    window = BatchWindow(size=4.0)
    for _ in range(5):
        window.note_answer(window.note_sent(), MAX_TIME_SHARE, is_batch=True)
    assert window.num_requests == 5
    for _ in range(5):
        window.note_answer(window.note_sent(), MAX_TIME_SHARE, is_batch=False)
    assert window.num_requests == 5


def test_it_has_a_maximum_which_it_begins_with() -> None:
    window = BatchWindow()
    window.note_answer(window.note_sent(), 0.0, is_batch=True)
    assert window.size == MAX_BATCH_SEQUENCES


def test_a_slow_answer_of_any_class_halves_it() -> None:
    window = BatchWindow(size=8.0)
    window.note_answer(window.note_sent(), MAX_TIME_SHARE + 0.01, is_batch=True)
    assert window.size == 4.0
    window.note_answer(window.note_sent(), MAX_TIME_SHARE + 0.01, is_batch=False)
    assert window.size == 2.0


def test_requests_that_were_sent_before_a_cut_cause_no_other_one() -> None:
    window = BatchWindow(size=8.0)
    numbers = [window.note_sent() for _ in range(8)]
    for number in numbers:
        window.note_answer(number, 2.0, is_batch=True)
    assert window.size == 4.0
    window.note_answer(window.note_sent(), 2.0, is_batch=True)
    assert window.size == 2.0


def test_one_request_is_always_allowed() -> None:
    window = BatchWindow(size=1.0)
    window.note_answer(window.note_sent(), 9.0, is_batch=True)
    assert window.num_requests == 1
