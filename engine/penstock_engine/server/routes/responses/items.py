"""Builds the objects of the Responses API: the response, and the items of its output."""

from typing import Any, Literal

from penstock_engine.parsers.json_scan import parse_object
from penstock_engine.server.answers.deltas import Delta
from penstock_engine.server.routes.responses.request import ResponsesRequest
from penstock_engine.server.transport.json_text import Json

CALL_TYPES = ("function_call", "custom_tool_call")

PREFIXES = {"reasoning": "rs", "text": "msg", "call": "fc", "custom": "ctc"}


def response(head: Json, request: ResponsesRequest, *, is_stored: bool) -> Json:
    """Returns the initial response, without its model. head: id and created_at."""
    text_format: Any = {"type": "text"}
    if request.text.format is not None:
        text_format = request.text.format.model_dump()
    choice = request.tool_choice
    return head | {
        "object": "response",
        "status": "in_progress",
        "background": request.background,
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": None,
        "metadata": request.metadata,
        "output": [],
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": request.reasoning.effort, "summary": None},
        "store": is_stored,
        "temperature": request.temperature,
        "text": {"format": text_format},
        "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
        "tools": [tool.model_dump() for tool in request.tools],
        "top_logprobs": request.top_logprobs,
        "top_p": request.top_p,
        "truncation": request.truncation,
        "usage": None,
    }


def end_status(finish_reason: str | None) -> Literal["completed", "incomplete"]:
    """Returns the status of a finished response."""
    return "incomplete" if finish_reason == "length" else "completed"


def last_item_status(delta: Delta, finish_reason: str | None) -> Literal["completed", "incomplete"]:
    """Returns the status of the last item of a response. A call with whole arguments is complete."""
    is_function = delta.kind == "call" and not delta.is_custom
    if is_function and parse_object(delta.text) is not None:
        return "completed"
    return end_status(finish_reason)


def is_cut_off_call(output: Json) -> bool:
    """Whether an output item is a call that the end of the answer cut off, so that nobody can run it."""
    return output["status"] == "incomplete" and output["type"] in CALL_TYPES


def finished(initial: Json, output: list[Json], finish_reason: str | None, usage: Json) -> Json:
    """Returns the finished response. initial: the response without output. usage: OpenAI's of a chat."""
    status = end_status(finish_reason)
    return initial | {
        "status": status,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "output": output,
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage.get("prompt_tokens_details") or {"cached_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0}
            | (usage.get("completion_tokens_details") or {}),
            "total_tokens": usage["total_tokens"],
        },
    }


def failed(initial: Json, output: list[Json], error: Json) -> Json:
    """Returns the failed response. error: OpenAI's error object of a chat."""
    code = "deadline_exceeded" if error["code"] == 504 else "server_error"
    details = {"code": code, "message": error["message"]}
    return initial | {"status": "failed", "output": output, "error": details}


def item(delta: Delta, response_id: str, index: int, *, status: str) -> Json:
    """Returns an output item with the text of `delta`, or without text if it is in progress."""
    prefix = PREFIXES["custom" if delta.is_custom else delta.kind]
    initial: Json = {
        "id": f"{prefix}_{response_id.removeprefix('resp_')}_{index}",
        "status": status,
    }
    is_done = status != "in_progress"
    match delta.kind:
        case "reasoning":
            content = [content_part(delta)] if is_done else []
            return initial | {"type": "reasoning", "summary": [], "content": content}
        case "text":
            content = [content_part(delta)] if is_done else []
            return initial | {"type": "message", "role": "assistant", "content": content}
        case "call" if delta.is_custom:
            call = {"type": "custom_tool_call", "call_id": delta.id, "name": delta.name}
            return initial | call | {"input": delta.text if is_done else ""}
        case "call":
            call = {"type": "function_call", "call_id": delta.id, "name": delta.name}
            return initial | call | {"arguments": delta.text if is_done else ""}


def as_input(output: Json) -> Json:
    """Converts an output item to an input item of the next turn, without its ids and status."""
    match output["type"]:
        case "function_call":
            return {name: output[name] for name in ("type", "call_id", "name", "arguments")}
        case "custom_tool_call":
            return {name: output[name] for name in ("type", "call_id", "name", "input")}
        case "message":
            texts = [{"type": "output_text", "text": p["text"]} for p in output["content"]]
            return {"type": "message", "role": "assistant", "content": texts}
        case _:
            texts = [{"type": "reasoning_text", "text": p["text"]} for p in output["content"]]
            return {"type": "reasoning", "content": texts}


def content_part(delta: Delta) -> Json:
    """Returns the content part of a reasoning or message item."""
    if delta.kind == "reasoning":
        return {"type": "reasoning_text", "text": delta.text}
    return {
        "type": "output_text",
        "text": delta.text,
        "annotations": [],
        "logprobs": delta.logprobs,
    }
