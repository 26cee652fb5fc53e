"""Log output of operator, gateway and engine: each record is one line of JSON, or text for a terminal.

    logger.info("request", extra=fields(request_id="a1", status=200))

    {"time": "...", "level": "info", "logger": "...", "message": "request", "request_id": "a1", ...}
    2026-11-25 20:01:02.345 INFO penstock.gateway.access: request request_id=a1 status=200

Texts that users made cannot add lines or fields: control characters are escaped in both formats.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, cast

LogFormat = Literal["json", "text"]
LogLevel = Literal["debug", "info", "warning", "error"]

# Control characters, the line separators of Unicode, and those that change the direction of text.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# Values that text shows without quotes.
PLAIN_VALUE = re.compile(r"[\w./:@%+-]+")

# Repeated warnings and errors: lines of one place in the code, about one service, in each period. The
# next line after them has the number of those left out.
MAX_REPEATS = 10
REPEAT_PERIOD_S = 60.0
# Bound on the places and services that are remembered. Beyond it all start anew.
MAX_REMEMBERED = 2000


def fields(**values: Any) -> dict[str, Any]:
    """The argument `extra` of a log call for these fields. Fields that are None are left out."""
    return {"fields": {name: value for name, value in values.items() if value is not None}}


def configure(
    log_format: LogFormat | None = None, level: LogLevel = "info", **context: object
) -> None:
    """Write the log records of this process to standard error.

    log_format None: text if that is a terminal, else JSON. context: fields of each line.
    """
    if log_format is None:
        log_format = "text" if sys.stderr.isatty() else "json"
    handler = logging.StreamHandler()
    kind = JsonFormatter if log_format == "json" else TextFormatter
    handler.setFormatter(kind(**context))
    handler.addFilter(RepeatLimit())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    if log_format == "json":
        sys.excepthook = _log_crash


def current_settings() -> tuple[LogFormat, LogLevel]:
    """The format and the level that `configure` has set, for child processes."""
    root = logging.getLogger()
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in root.handlers)
    level = logging.getLevelName(root.getEffectiveLevel()).lower()
    return "json" if is_json else "text", cast(LogLevel, level)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON in ASCII. context: fields of each line."""

    def __init__(self, **context: object) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _utc(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {n: v for n, v in (self._context | _fields(record)).items() if n not in line}
        if trace := _traceback(self, record):
            line["traceback"] = trace
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record as one line of text; the lines of a traceback follow, indented.

    context: fields of each line.
    """

    def __init__(self, **context: object) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_local(record.created)} {record.levelname} {record.name}:"
        values = self._context | _fields(record)
        words = [head, _escaped(record.getMessage())]
        words += [f"{name}={_value(value)}" for name, value in values.items()]
        lines = [" ".join(words)]
        lines += [f"    {_escaped(line)}" for line in _traceback(self, record).split("\n") if line]
        return "\n".join(lines)


@dataclass(slots=True)
class _Period:
    """Records of one kind since a time, on the monotonic clock."""

    started_s: float
    num_records: int = 0


class RepeatLimit(logging.Filter):
    """Limits the warnings and errors that repeat: MAX_REPEATS of a kind in REPEAT_PERIOD_S.

    A kind is a place in the code and the service of the record. now: the monotonic clock.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._periods: dict[tuple[str, int, object], _Period] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        kind = (record.pathname, record.lineno, _fields(record).get("service"))
        now_s = self._now()
        if len(self._periods) > MAX_REMEMBERED:
            self._periods.clear()
        period = self._periods.setdefault(kind, _Period(now_s))
        if now_s - period.started_s >= REPEAT_PERIOD_S:
            self._periods[kind] = _Period(now_s, 1)
            if period.num_records > MAX_REPEATS:
                record.fields = _fields(record) | {"left_out": period.num_records - MAX_REPEATS}
            return True
        period.num_records += 1
        return period.num_records <= MAX_REPEATS


def _fields(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = getattr(record, "fields", {})
    return found


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if not record.exc_info:
        return ""
    return formatter.formatException(record.exc_info)


def _utc(unix_s: float) -> str:
    text = datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _local(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _escaped(text: str) -> str:
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _value(value: object) -> str:
    text = str(value)
    return text if PLAIN_VALUE.fullmatch(text) else json.dumps(text)


def _log_crash(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    logging.getLogger(__name__).critical("the process ends", exc_info=(kind, error, trace))
