"""Log output of operator and gateway: the engine's, so that one query finds a request in both."""

from penstock_engine.logs import LogFormat, LogLevel, configure, fields

__all__ = ["LogFormat", "LogLevel", "configure", "fields"]
