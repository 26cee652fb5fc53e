"""Joins the streamed deltas of tool calls."""

from typing import Any


def append_call(calls: list[dict[str, Any]], delta: dict[str, Any]) -> None:
    """Appends a streamed delta to the calls: one with an id begins a call, any other continues the last."""
    index = delta.pop("index")
    if "id" in delta:
        assert index == len(calls)
        calls.append(delta)
    else:
        assert index == len(calls) - 1
        assert delta["function"].keys() == {"arguments"}
        calls[-1]["function"]["arguments"] += delta["function"]["arguments"]
