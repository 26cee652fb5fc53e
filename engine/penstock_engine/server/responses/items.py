"""The objects of the Responses API: the response, and the items of its output."""

from typing import Any, Literal

from penstock_engine.server.answers import Json
from penstock_engine.server.deltas import Part
from penstock_engine.server.responses.request import ResponsesRequest

PREFIXES = {"reasoning": "rs", "text": "msg", "call": "fc", "custom": "ctc"}


def response(head: Json, request: ResponsesRequest, *, is_stored: bool) -> Json:
    """As it begins, but for its model. head: id and created_at."""
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
    """The status of a response that has ended, and of its last item unless that is a call."""
    return "incomplete" if finish_reason == "length" else "completed"


def last_item_status(part: Part, finish_reason: str | None) -> Literal["completed", "incomplete"]:
    """The status of the last item of a response. Calls come whole: none is cut off."""
    return "completed" if part.kind == "call" else end_status(finish_reason)


def finished(begun: Json, output: list[Json], finish_reason: str | None, usage: Json) -> Json:
    status = end_status(finish_reason)
    return begun | {
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


def failed(begun: Json, output: list[Json], error: Json) -> Json:
    """error: OpenAI's, of another route."""
    told = {"code": "server_error", "message": error["message"]}
    return begun | {"status": "failed", "output": output, "error": told}


def item(part: Part, response_id: str, index: int, *, status: str) -> Json:
    """An item of the output with what `part` says: none of its text while it is in progress."""
    prefix = PREFIXES["custom" if part.is_custom else part.kind]
    begun: Json = {
        "id": f"{prefix}_{response_id.removeprefix('resp_')}_{index}",
        "status": status,
    }
    is_done = status != "in_progress"
    match part.kind:
        case "reasoning":
            content = [content_part(part)] if is_done else []
            return begun | {"type": "reasoning", "summary": [], "content": content}
        case "text":
            content = [content_part(part)] if is_done else []
            return begun | {"type": "message", "role": "assistant", "content": content}
        case "call" if part.is_custom:
            call = {"type": "custom_tool_call", "call_id": part.id, "name": part.name}
            return begun | call | {"input": part.text if is_done else ""}
        case "call":
            call = {"type": "function_call", "call_id": part.id, "name": part.name}
            return begun | call | {"arguments": part.text if is_done else ""}


def as_input(output: Json) -> Json:
    """Converts an output item to an input item of the next turn."""
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


def content_part(part: Part) -> Json:
    if part.kind == "reasoning":
        return {"type": "reasoning_text", "text": part.text}
    return {
        "type": "output_text",
        "text": part.text,
        "annotations": [],
        "logprobs": part.logprobs,
    }
