"""Lines of a watch, which arrive in chunks."""

import pytest

from penstock.clients.kubernetes.client import lines


class Content:
    def __init__(self, chunks):
        self.chunks = chunks

    async def iter_any(self):
        for chunk in self.chunks:
            yield chunk


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc", b"\n"], [b"ab", b"c"]),
        ([b"\n\na\n", b"\n", b"b\n"], [b"a", b"b"]),
        ([b"a\n", b"no end"], [b"a"]),
    ],
)
async def test_whole_lines_are_passed_on(chunks, expected):
    assert [line async for line in lines(Content(chunks))] == expected
