"""Reads and checks single values of config.json."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from penstock_engine.core.errors import ModelError


def read_count(
    raw: Mapping[str, Any], key: str, default: int | None = None, *, least: int = 1
) -> int:
    """default stands for an absent key and for null. Raises ModelError."""
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise config_error(f"{key} must be a whole number of at least {least}")
    return value


def read_number(raw: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """default stands for an absent key and for null. Raises ModelError."""
    value = raw.get(key)
    value = default if value is None else value
    if not is_number(value):
        raise config_error(f"{key} must be a positive number")
    return float(value)


def read_optional_number(raw: Mapping[str, Any], key: str) -> float | None:
    return None if raw.get(key) is None else read_number(raw, key)


def read_numbers(raw: Mapping[str, Any], key: str, length: int) -> list[float]:
    values = raw.get(key)
    if not isinstance(values, list) or len(values) != length or not all(map(is_number, values)):
        raise config_error(f"{key} must be a list of {length} positive numbers")
    return values


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a positive number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def config_error(message: str) -> ModelError:
    return ModelError("BadConfig", message)
