"""Log output of operator and gateway: the engine's, so that one query finds a request in both."""

from typing import Any

from penstock_engine.logs import LogFormat, LogLevel, configure, fields

__all__ = ["LogFormat", "LogLevel", "about", "configure", "fields"]


def about(key: tuple[str, str], **values: Any) -> dict[str, Any]:
    """The argument `extra` of a log call about a service. key: its namespace and name."""
    return fields(service="/".join(key), **values)
