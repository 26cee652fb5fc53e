"""Splits a file into lines, chunk by chunk, in memory of one chunk and one line."""


class LineSplitter:
    """Lines of a file that arrives in chunks. max_line_bytes: longer lines are not kept."""

    def __init__(self, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._partial = bytearray()  # the line that is not complete
        self._is_too_long = False  # that line
        self.num_lines = 0  # complete ones, blank ones included

    def feed(self, chunk: bytes) -> list[tuple[int, bytes | None]]:
        """Return the lines that the chunk completes and that are not blank, with their numbers from 1.

        None in place of a line that is too long.
        """
        first, *others = chunk.split(b"\n")
        self._extend(first)
        if not others:
            return []
        *whole, last = others
        number, self.num_lines = self.num_lines + 1, self.num_lines + len(others)
        lines = self._take(number)
        for each in whole:
            number += 1
            if each and not each.isspace():
                lines.append((number, each if len(each) <= self._max_line_bytes else None))
        self._extend(last)
        return lines

    def close(self) -> list[tuple[int, bytes | None]]:
        """Return the last line, if it has no line feed and is not blank."""
        return self._take(self.num_lines + 1)

    def _extend(self, part: bytes) -> None:
        if self._is_too_long:
            return
        self._partial += part
        if len(self._partial) > self._max_line_bytes:
            self._partial.clear()
            self._is_too_long = True

    def _take(self, number: int) -> list[tuple[int, bytes | None]]:
        line = None if self._is_too_long else bytes(self._partial)
        self._partial.clear()
        self._is_too_long = False
        return [] if line is not None and not line.strip() else [(number, line)]
