"""Log output of operator and gateway. The engine's has the same form, so that one query covers both."""

from typing import Any

from penstock_engine.telemetry.logs import LogFormat, LogLevel, configure, fields

__all__ = ["LogFormat", "LogLevel", "configure", "fields", "service_fields"]


def service_fields(key: tuple[str, str], **values: Any) -> dict[str, Any]:
    """The argument `extra` of a log call about a service. key: its namespace and name."""
    return fields(service="/".join(key), **values)
