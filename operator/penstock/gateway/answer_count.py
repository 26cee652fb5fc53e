"""How many tokens an answer has, without reading it.

An engine that tells usage is believed. Else each event of a stream is taken for a token, but for the
DONE event and, in a chat, the one that opens it. That is exact for an engine that sends each token by
itself, and too few where it sends several at once: when it speculates, or when a character takes
more than one token.
"""

import re

from penstock.gateway.prompt_text import BYTES_PER_TOKEN

# A quote inside of text is escaped in JSON, so that text never looks like these.
PROMPT_TOKENS = re.compile(rb'"prompt_tokens"\s*:\s*(\d{1,9})')
CACHED_TOKENS = re.compile(rb'"cached_tokens"\s*:\s*(\d{1,9})')
COMPLETION_TOKENS = re.compile(rb'"completion_tokens"\s*:\s*(\d{1,9})')
# White space says nothing.
TEXT = re.compile(
    rb'"(?:content|text|delta|reasoning|reasoning_content|refusal|arguments)"\s*:\s*'
    rb'"(?:\\[nrt]|\s)*(?!\\[nrt])[^"\s]'
    rb'|"tool_calls"\s*:\s*\[\s*\{'
)
# What an engine sends when it fails behind the first byte, in the words of each dialect.
FAILED = re.compile(
    rb'(?:^|\n)data: ?\{\s*(?:"type"\s*:\s*"error"\s*,\s*)?"error"\s*:'
    rb"|(?:^|\n)event: ?response\.failed\s"
)
CODE = re.compile(rb'"code"\s*:\s*(\d{3})\b')


def error_status(events: bytes) -> int | None:
    """The HTTP status that an error event stands for, 500 if it gives none; None without such an event."""
    failed = FAILED.search(events)
    if failed is None:
        return None
    code = CODE.search(events, failed.start())
    return 500 if code is None else int(code[1])


class AnswerCount:
    """overhead: events of a stream that are no tokens. has_text: whether it says or calls anything.
    has_error: whether a stream has an error event. has_failed: one that is not the client's.
    prompt_tokens: None when the engine does not tell."""

    def __init__(self, *, is_stream: bool, overhead: int) -> None:
        self._is_stream = is_stream
        self._overhead = overhead
        self._events = 0
        self._bytes = 0
        self._told: int | None = None
        self.prompt_tokens: int | None = None
        self.cached_tokens = 0
        self.has_text = self.has_error = self.has_failed = False

    def feed(self, chunk: bytes) -> None:
        """Whole events, or a part of an answer that is none."""
        self._bytes += len(chunk)
        if self._is_stream:
            self._events += chunk.count(b"\n\n") + chunk.count(b"\r\n\r\n")
            if (status := error_status(chunk)) is not None:
                self.has_error, self.has_failed = True, status >= 500
        if not self.has_text:
            self.has_text = TEXT.search(chunk) is not None
        if b'"completion_tokens"' in chunk:
            if told := COMPLETION_TOKENS.findall(chunk):
                self._told = int(told[-1])
            if prompt := PROMPT_TOKENS.findall(chunk):
                self.prompt_tokens = int(prompt[-1])
            if cached := CACHED_TOKENS.findall(chunk):
                self.cached_tokens = int(cached[-1])

    @property
    def output_tokens(self) -> int:
        if self._told is not None:
            return self._told
        if self._is_stream:
            return max(1, self._events - self._overhead)
        return max(1, self._bytes // BYTES_PER_TOKEN)
