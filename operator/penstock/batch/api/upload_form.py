"""Reads the form of an upload as it arrives, without holding the file in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from aiohttp import BodyPartReader, ClientError, MultipartReader, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from penstock.batch.api.errors import ApiError

# Bounds on a form beside its file: parts, and bytes of a text.
MAX_PARTS, MAX_TEXT_BYTES = 16, 1024
MAX_NAME_CHARACTERS = 255
CHUNK_BYTES = 256 << 10
# Lines of a form outside the contents of its parts, which have a few each. aiohttp skips what is before the
# first part line by line, without a pause: four uploads of 4 MB of line feeds stopped the server for 8 s.
MAX_LINES = 1000
# s: a chunk that takes longer to arrive ends the upload.
CHUNK_TIMEOUT_S: Final = 60.0

StoreFile = Callable[[AsyncIterator[bytes]], Awaitable[int]]


@dataclass(slots=True)
class UploadForm:
    """The parts of a form. num_bytes: of the file; None: it has none. texts: other parts by name."""

    file_name: str = ""
    num_bytes: int | None = None
    texts: dict[str, str] = field(default_factory=dict)


async def read_form(request: web.Request, store_file: StoreFile) -> UploadForm:
    """Read a form, and store its file. store_file: gets the chunks, and returns their size.

    Raises ApiError if it is no form, and what `store_file` raises.
    """
    if request.content_type != "multipart/form-data":
        message = "the content type must be multipart/form-data, with the fields file and purpose"
        raise ApiError(415, message)
    try:
        return await _read_parts(request, store_file)
    except TimeoutError:
        message = f"the upload stood still for {CHUNK_TIMEOUT_S:g} s: send it again"
        raise ApiError(408, message) from None
    except (AssertionError, ValueError, ClientError, HttpProcessingError) as error:
        # aiohttp's errors of forms repeat parts of them.
        raise ApiError(400, "the form is not well formed: check its boundary") from error


async def _read_parts(request: web.Request, store_file: StoreFile) -> UploadForm:
    content = cast(StreamReader, _FewLines(request.content))
    form, reader = UploadForm(), MultipartReader(request.headers, content)
    for _ in range(MAX_PARTS):
        async with asyncio.timeout(CHUNK_TIMEOUT_S):
            part = await reader.next()
        if part is None:
            return form
        if not isinstance(part, BodyPartReader):
            raise ApiError(400, "a part of the form must not be a form itself")
        if part.name == "file":
            if form.num_bytes is not None:
                raise ApiError(400, "the form must have one file", param="file")
            form.file_name = base_name(part.filename or "")
            form.num_bytes = await store_file(_chunks(part))
        else:
            form.texts[(part.name or "")[:MAX_NAME_CHARACTERS]] = await _text(part)
    raise ApiError(400, f"the form has more than {MAX_PARTS} parts")


class _FewLines:
    """A stream of which at most MAX_LINES can be read as lines."""

    def __init__(self, stream: StreamReader) -> None:
        self._stream = stream
        self._num_lines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def readline(self, **bounds: Any) -> bytes:
        """Read a line. Raises ValueError."""
        self._num_lines += 1
        if self._num_lines > MAX_LINES:
            raise ValueError(f"more than {MAX_LINES} lines")
        return await self._stream.readline(**bounds)


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while not part.at_eof():
        async with asyncio.timeout(CHUNK_TIMEOUT_S):
            chunk = await part.read_chunk(CHUNK_BYTES)
        yield chunk


async def _text(part: BodyPartReader) -> str:
    text = b""
    async for chunk in _chunks(part):
        text += chunk
        if len(text) > MAX_TEXT_BYTES:
            message = f"a field of the form may have {MAX_TEXT_BYTES} bytes"
            raise ApiError(400, message, param=(part.name or "")[:MAX_NAME_CHARACTERS])
    return text.decode(errors="replace")


def base_name(name: str) -> str:
    """The last part of a path, without control characters: it is shown, and names nothing here."""
    last = name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(each for each in last if each.isprintable())[:MAX_NAME_CHARACTERS]
    return printable or "upload.jsonl"
