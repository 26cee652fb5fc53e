"""Counts the tokens of an answer without parsing it.

Usage in the answer is believed. Without it each event of a stream counts as one token, except for
the DONE event and, in a chat, the first one. That is exact for an engine that sends one token per
event, and too low for one that sends several: with speculative decoding, or when a character takes
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
# The error event of an engine that fails after the first byte: chat and completions, then responses.
FAILED = re.compile(
    rb'(?:^|\n)data: ?\{\s*(?:"type"\s*:\s*"error"\s*,\s*)?"error"\s*:'
    rb"|(?:^|\n)event: ?response\.failed\s"
)
CODE = re.compile(rb'"code"\s*:\s*(\d{3})\b')


def error_status(events: bytes) -> int | None:
    """HTTP status of the first error event: 500 if it has no code, None without such an event."""
    failed = FAILED.search(events)
    if failed is None:
        return None
    code = CODE.search(events, failed.start())
    return 500 if code is None else int(code[1])


class AnswerCount:
    """Token counts and errors of one answer, from its bytes.

    overhead: events of a stream that are no tokens. has_text: whether there is any text or tool
    call. has_error: whether a stream has an error event. has_failed: whether that is of class 5xx,
    so not the client's fault. prompt_tokens: None without usage.
    """

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
        """Count a part of the answer: whole events of a stream, any bytes of another answer."""
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
