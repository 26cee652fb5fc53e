"""Tests of the log output: one line per record, whatever its texts contain."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock_engine.telemetry.logs import (
    MAX_REPEATS,
    REPEAT_PERIOD_S,
    JsonFormatter,
    RepeatLimit,
    TextFormatter,
    fields,
)

FORGED = 'x\u061c\n{"level": "error"}\r\x1b[2K\u2028\u202e\x85 status=200'


def record(
    text: str = "hello", /, *args: object, level: int = 20, **values: Any
) -> logging.LogRecord:
    made = logging.getLogger("a.b").makeRecord("a.b", level, "f.py", 7, text, args, None)
    made.__dict__ |= fields(**values)
    return made


def test_json_lines_have_utc_time_level_logger_message_and_fields() -> None:
    line = JsonFormatter(rank=1).format(record("hello %s", "x", status=200, absent=None))
    read = json.loads(line)
    assert read.pop("time").endswith("Z")
    assert read == {
        "level": "info", "logger": "a.b", "message": "hello x", "rank": 1, "status": 200,
    }  # fmt: skip


def test_fields_cannot_replace_the_records_own() -> None:
    read = json.loads(JsonFormatter().format(record("hello", level=30, message="no")))
    assert (read["message"], read["level"]) == ("hello", "warning")


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_texts_of_users_stay_on_one_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record("%s", FORGED, reason=FORGED))
    assert len(line.splitlines()) == 1
    assert line.isprintable()


def test_a_text_value_cannot_look_like_another_field() -> None:
    line = TextFormatter().format(record("request", reason='a status=200 "', status=503))
    assert line.endswith(r'INFO a.b: request reason="a status=200 \"" status=503')


@pytest.mark.parametrize(
    ("formatter", "lines"),
    [(JsonFormatter(), lambda n: n == 1), (TextFormatter(), lambda n: n > 3)],
)
def test_tracebacks_do_not_start_lines(
    formatter: logging.Formatter, lines: Callable[[int], bool]
) -> None:
    made = record("failed")
    try:
        raise ValueError(FORGED)
    except ValueError:
        made.exc_info = sys.exc_info()
    first, *others = formatter.format(made).splitlines()
    assert lines(1 + len(others))
    assert "ValueError" in "".join([first, *others])
    assert all(line.startswith("    ") for line in others)


def test_repeated_warnings_are_limited_by_place_and_service() -> None:
    now = 0.0
    limit = RepeatLimit(lambda: now)

    def passed(count: int, level: int, **values: object) -> int:
        return sum(limit.filter(record(level=level, **values)) for _ in range(count))

    assert passed(100, 30) == MAX_REPEATS
    assert passed(100, 30, service="default/chat") == MAX_REPEATS
    assert passed(100, 20) == 100
    now = REPEAT_PERIOD_S
    made = record(level=30)
    assert limit.filter(made)
    assert made.fields == {"left_out": 100 - MAX_REPEATS}


def test_a_process_without_a_terminal_logs_json_even_when_it_crashes() -> None:
    code = (
        "import logging, warnings; from penstock_engine.telemetry import logs; logs.configure(level='debug');"
        "logging.getLogger('x').debug('one'); warnings.warn('two'); raise OSError('three')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["debug", "warning", "critical"]
    assert "two" in lines[1]["message"]
    assert "OSError: three" in lines[2]["traceback"]
