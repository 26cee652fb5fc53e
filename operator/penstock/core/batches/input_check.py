"""Checks the lines of an input file, chunk by chunk, in memory that does not depend on the file's size."""

from hashlib import blake2b

from penstock.core.batches.input_line import InputLineError, parse_line
from penstock.core.batches.line_splitter import LineSplitter
from penstock.core.batches.records import BatchError

# As OpenAI's.
MAX_LINES = 50_000
# Lines with the blank ones: 200 MB of line feeds would take minutes to split.
MAX_LINES_WITH_BLANK = 2 * MAX_LINES
# Errors that a batch shows; the check ends with the last of them.
MAX_ERRORS = 100


class InputCheck:
    """The check of one input file. endpoint: of its batch. max_line_bytes: longer lines are refused.

    num_lines: without blank ones. errors: none while the file is good.
    """

    def __init__(self, endpoint: str, max_line_bytes: int) -> None:
        self._endpoint = endpoint
        self._max_line_bytes = max_line_bytes
        self._lines = LineSplitter(max_line_bytes)
        self.num_lines = 0
        self.errors: list[BatchError] = []
        self._models: set[str] = set()
        self._custom_ids: set[bytes] = set()  # digests: the names of all lines could be 100 MB

    @property
    def is_over(self) -> bool:
        """Whether further chunks are not worth checking."""
        return len(self.errors) >= MAX_ERRORS or self._has_too_many

    @property
    def model(self) -> str | None:
        """The model that all lines name; None if they name several."""
        return next(iter(self._models)) if len(self._models) == 1 else None

    @property
    def _has_too_many(self) -> bool:
        return self.num_lines > MAX_LINES or self._lines.num_lines > MAX_LINES_WITH_BLANK

    def feed(self, chunk: bytes) -> None:
        """Check the next chunk of the file."""
        for number, line in self._lines.feed(chunk):
            self._add(number, line)
            if self.is_over:
                break

    def close(self) -> None:
        """Check the last line, and what only the end of the file shows."""
        if not self.is_over:
            for number, line in self._lines.close():
                self._add(number, line)
        if self._has_too_many:
            message = f"a file may have {MAX_LINES} requests, and as many blank lines: split it"
            self.errors.append(BatchError("too_many_requests", message))
        elif not self.num_lines:
            self.errors.append(BatchError("empty_file", "the file has no requests"))

    def _add(self, number: int, text: bytes | None) -> None:
        index, self.num_lines = self.num_lines, self.num_lines + 1
        try:
            if text is None:
                message = f"the line is longer than {self._max_line_bytes} bytes"
                raise InputLineError("line_too_long", message)
            line = parse_line(text, index, self._endpoint)
            self._claim(line.custom_id)
        except InputLineError as error:
            self.errors.append(error.at(number))
            return
        if len(self._models) < 2:
            self._models.add(line.model)

    def _claim(self, custom_id: str) -> None:
        name = custom_id.encode("utf-8", "surrogatepass")
        digest = blake2b(name, digest_size=16).digest()
        if digest in self._custom_ids:
            message = "another line has the same custom_id"
            raise InputLineError("duplicate_custom_id", message, "custom_id")
        self._custom_ids.add(digest)
