"""h11's server parser with bounds on the bytes and the lines of a head."""

import h11
from h11._receivebuffer import ReceiveBuffer


class HeaderLimitedConnection(h11.Connection):
    """h11's server parser that refuses a head with too many bytes or lines.

    It raises h11's error with the hint 431. The gateway answers with that status; uvicorn, and so the engine,
    answers 400.

    The bound on a head's bytes does not bound their cost: each line, such as `a:`, takes 5 us and 400 bytes.
    max_head_bytes: of a head. max_lines: of the headers in a head, or of the trailers behind a body.
    """

    def __init__(self, max_head_bytes: int, max_lines: int) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=max_head_bytes)
        # h11 parses lines as soon as it has taken a whole block of them from its buffer.
        self._receive_buffer = _BoundedLines(max_lines)


class _BoundedLines(ReceiveBuffer):
    def __init__(self, max_lines: int) -> None:
        super().__init__()
        self._max_lines = max_lines

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Take a head or trailers, if they are complete. Raises h11.RemoteProtocolError."""
        lines = super().maybe_extract_lines()
        # A head has the request line too.
        if lines is not None and len(lines) > 1 + self._max_lines:
            message = f"more than {self._max_lines} header lines"
            raise h11.RemoteProtocolError(message, error_status_hint=431)
        return lines
