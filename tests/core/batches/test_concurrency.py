"""The number of lines at a time grows while they are answered, and halves when they are refused."""

from penstock.core.batches.concurrency import (
    FIRST_PAUSE_S,
    INITIAL_WINDOW,
    MAX_PAUSE_S,
    MAX_RETRY_AFTER_S,
    MAX_WINDOW,
    LineWindow,
)


def test_a_window_of_answers_adds_a_line() -> None:
    window = LineWindow(size=8.0)
    for _ in range(9):
        window.note_answer()
    assert window.num_lines == 9


def test_the_window_is_bounded() -> None:
    window = LineWindow(size=MAX_WINDOW)
    window.note_answer()
    assert window.size == MAX_WINDOW


def test_a_refusal_halves_the_window_and_pauses() -> None:
    window = LineWindow(size=9.0)
    window.note_refusal(100.0, sent_s=99.0, retry_after_s=None)
    assert (window.num_lines, window.resume_s) == (4, 100.0 + FIRST_PAUSE_S)


def test_lines_of_the_same_window_do_not_halve_it_again() -> None:
    window = LineWindow(size=8.0)
    window.note_refusal(100.0, sent_s=99.0, retry_after_s=None)
    window.note_refusal(100.2, sent_s=99.5, retry_after_s=None)
    assert window.num_lines == 4
    window.note_refusal(101.5, sent_s=101.2, retry_after_s=None)
    assert window.num_lines == 2


def test_pauses_double_until_a_line_is_answered() -> None:
    window, now_s, pauses_s = LineWindow(), 0.0, []
    for _ in range(8):
        window.note_refusal(now_s, sent_s=now_s, retry_after_s=None)
        pauses_s.append(window.resume_s - now_s)
        now_s = window.resume_s
    assert pauses_s == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_PAUSE_S, MAX_PAUSE_S]
    assert window.num_lines == 1
    window.note_answer()
    window.note_refusal(now_s, sent_s=now_s, retry_after_s=None)
    assert window.resume_s == now_s + FIRST_PAUSE_S


def test_a_retry_after_is_followed_within_a_bound() -> None:
    window = LineWindow()
    window.note_refusal(0.0, sent_s=0.0, retry_after_s=20.0)
    assert window.resume_s == 20.0
    window.note_refusal(0.5, sent_s=0.0, retry_after_s=30.0)
    assert window.resume_s == 30.5
    window.note_refusal(40.0, sent_s=40.0, retry_after_s=1e6)
    assert window.resume_s == 40.0 + MAX_RETRY_AFTER_S


def test_a_new_window_is_small() -> None:
    assert LineWindow().num_lines == INITIAL_WINDOW
