"""A tour of an engine or a gateway with LangChain. Runs in an environment of its own: python FILE URL KEY."""

import asyncio
import sys
from typing import Any, Literal

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

ASK = "What is a penstock?"


class Mood(BaseModel):
    """How it is."""

    mood: Literal["calm", "wild"]


@tool
def look(at: Literal["sky", "sea"]) -> str:
    """Look at something."""
    return f"the {at} is blue"


def tour(url: str, key: str) -> None:
    at: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": key, "max_retries": 0}

    chat = ChatOpenAI(model="soup", max_tokens=8, temperature=0, seed=3, **at)
    whole = chat.invoke(ASK)
    chunks = list(chat.stream(ASK, stream_usage=True))
    assert "".join(str(chunk.content) for chunk in chunks) == whole.content
    usage = next(chunk.usage_metadata for chunk in chunks if chunk.usage_metadata)
    assert usage["output_tokens"] == whole.usage_metadata["output_tokens"]
    print("chat, whole and streamed")

    formed = ChatOpenAI(model="soup", max_tokens=800, **at).with_structured_output(
        Mood, method="json_schema"
    )
    assert formed.invoke(ASK).mood in ("calm", "wild")
    print("structured output")

    long = ChatOpenAI(model="soup", max_tokens=800, **at)
    bound = long.bind_tools([look], tool_choice="required", parallel_tool_calls=False, strict=True)
    called = bound.invoke(ASK)
    (call,) = called.tool_calls
    result: ToolMessage = look.invoke(call)
    assert "blue" in str(result.content)
    chat.bind_tools([look]).invoke([HumanMessage(ASK), called, result])
    print("a tool is called and answered")

    many = asyncio.run(chat.abatch([ASK] * 3))
    assert {answer.content for answer in many} == {whole.content}
    print("several at a time")

    answered = ChatOpenAI(
        model="soup", use_responses_api=True, max_tokens=16, temperature=0, **at
    ).invoke(ASK)
    assert answered.text
    print("the Responses API")

    # The check would split texts by a tokenizer of OpenAI's models, which has to be downloaded.
    embedder = OpenAIEmbeddings(model="soup", check_embedding_ctx_length=False, **at)
    first, again = embedder.embed_documents(["The engine", "The engine"])
    assert first == again
    print("embeddings")

    for wrong, kind in (
        ({"model": "other"}, openai.NotFoundError),
        ({"model": "soup", "api_key": "wrong"}, openai.AuthenticationError),
    ):
        try:
            ChatOpenAI(**{**at, **wrong}).invoke(ASK)
        except kind:
            continue
        raise AssertionError(f"{wrong} was served")
    print("errors of its own")


if __name__ == "__main__":
    tour(sys.argv[1], sys.argv[2])
