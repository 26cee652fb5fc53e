"""A prototype: reads a model's weights from its source straight into the model's parameters.

It uses the product's sources, retries and model. Nothing is written but the configuration and the headers.
"""

import hashlib
import json
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from penstock_engine.checkpoints.weights import parts_of, renamed
from penstock_engine.models.config import ModelConfig
from penstock_engine.models.decoder import DecoderForCausalLM
from penstock_engine.models.shard import unsharded
from penstock_engine.sources.deadline import Deadline
from penstock_engine.sources.headers.fetch_headers import fetch_headers
from penstock_engine.sources.limits import FetchLimits
from penstock_engine.sources.listing import SourceFile
from penstock_engine.sources.parallel import run_parallel
from penstock_engine.sources.protocols.opening import open_source
from penstock_engine.sources.protocols.source import Source
from penstock_engine.sources.ranges import read_range
from penstock_engine.sources.resolution import parse_source
from penstock_engine.sources.storage.partial_file import Part, divide

Buffer = npt.NDArray[np.uint8]


def build_model(folder: Path) -> DecoderForCausalLM:
    """The model of a folder with a configuration, whose parameters are on the meta device."""
    config = ModelConfig.load(folder)
    return DecoderForCausalLM(
        config, max_positions=2048, dtype=torch.bfloat16, device="cpu", shard=unsharded(config)
    )


def stream_model(
    uri: str, folder: Path, limits: FetchLimits, is_hashed: bool
) -> tuple[DecoderForCausalLM, dict[str, str]]:
    """Read a model from its source. folder: empty, for configuration and headers. Raises FetchError.

    is_hashed: compute the files' SHA-256 while they arrive. Returns the model, and the digests by file name.
    """
    pinned = fetch_headers(uri, folder, limits).resolved_uri
    model = build_model(folder)
    deadline = Deadline(limits)
    with closing(open_source(parse_source(pinned), limits)) as remote:
        listing = deadline.retrying(remote.resolve)
        files = [file for file in listing.files if file.name.endswith(".safetensors")]
        headers = {file.name: _read_header(folder / file.name) for file in files}
        targets = _allocate(model, [header for header, _ in headers.values()])
        readers = [
            _FileReader(remote, file, *headers[file.name], targets, deadline, is_hashed)
            for file in files
        ]
        # Parts are read round-robin over the files, so that the digests of all files advance together.
        columns = [[partial(reader.read, part) for part in reader.parts] for reader in readers]
        longest = max(map(len, columns))
        run_parallel([c[n] for n in range(longest) for c in columns if n < len(c)], deadline)
    return model, {reader.name: reader.hexdigest() for reader in readers if is_hashed}


def _read_header(path: Path) -> tuple[dict[str, dict[str, list[int]]], bytes]:
    """The entries of a safetensors file's tensors, and the bytes before its data."""
    with path.open("rb") as file:
        size = file.read(8)
        text = file.read(int.from_bytes(size, "little"))
    entries = json.loads(text)
    entries.pop("__metadata__", None)
    return entries, size + text


def _allocate(
    model: DecoderForCausalLM, headers: Sequence[dict[str, dict[str, list[int]]]]
) -> dict[str, torch.Tensor]:
    """Allocate the parameters. Returns the rows of them that each tensor of the checkpoint has, by name."""
    names = model.shard.config.family.names
    shapes = {name: entry["shape"] for header in headers for name, entry in header.items()}
    targets: dict[str, torch.Tensor] = {}
    for module_name, module in list(model.named_modules()):
        for leaf, parameter in list(module.named_parameters(recurse=False)):
            name = f"{module_name}.{leaf}"
            value = torch.empty(parameter.shape, dtype=torch.bfloat16)
            setattr(module, leaf, nn.Parameter(value, requires_grad=False))
            whole = renamed(name, names)
            parts = [whole] if whole in shapes else parts_of(name, names)
            rows = [shapes[part][0] for part in parts]
            targets |= dict(zip(parts, value.split(rows), strict=True))
    return targets


class _FileReader:
    """Reads one file into tensors. Its parts are read by several threads."""

    def __init__(
        self,
        remote: Source,
        file: SourceFile,
        entries: dict[str, dict[str, list[int]]],
        header: bytes,
        targets: dict[str, torch.Tensor],
        deadline: Deadline,
        is_hashed: bool,
    ) -> None:
        self.name = file.name
        self._remote, self._file, self._deadline = remote, file, deadline
        places: list[tuple[int, Buffer]] = [(0, np.empty(len(header), np.uint8))]
        for name, entry in entries.items():
            buffer = targets[name].flatten().view(torch.uint8).numpy()
            places.append((len(header) + entry["data_offsets"][0], buffer))
        places.sort(key=lambda place: place[0])
        self._starts = [start for start, _ in places]
        self._buffers = [buffer for _, buffer in places]
        self.parts = tuple(divide(file.size_bytes, deadline.limits.part_bytes))
        self._digest = hashlib.sha256() if is_hashed else None
        self._lock = threading.Lock()
        self._done: set[int] = set()
        self._num_hashed, self._is_hashing = 0, False

    def read(self, part: Part) -> None:
        """Read a part, in as many attempts as it takes. Raises FetchError, Cancelled."""
        self._deadline.retrying(partial(self._attempt, part))
        if self._digest is not None:
            self._hash_after(part)

    def hexdigest(self) -> str:
        return "" if self._digest is None else self._digest.hexdigest()

    def _attempt(self, part: Part) -> None:
        position = part.start
        chunks = read_range(self._remote, self._file, part.start, part.end, self._deadline)
        with closing(chunks):
            for chunk in chunks:
                data = np.frombuffer(chunk, np.uint8)
                for piece in self._pieces(position, position + len(data)):
                    np.copyto(piece, data[: len(piece)])  # without the lock of the interpreter
                    data = data[len(piece) :]
                    position += len(piece)

    def _pieces(self, start: int, end: int) -> Iterator[Buffer]:
        """The memory of a range of the file, in order."""
        index = bisect_right(self._starts, start) - 1
        while start < end:
            offset = start - self._starts[index]
            piece = self._buffers[index][offset : offset + end - start]
            yield piece
            start += len(piece)
            index += 1

    def _hash_after(self, part: Part) -> None:
        """Hash what is there in the order of the file, unless another thread does."""
        with self._lock:
            self._done.add(part.index)
            if self._is_hashing:
                return
            self._is_hashing = True
        while True:
            with self._lock:
                if self._num_hashed not in self._done:
                    self._is_hashing = False
                    return
            following = self.parts[self._num_hashed]
            for piece in self._pieces(following.start, following.end):
                assert self._digest is not None
                self._digest.update(piece)
            self._num_hashed += 1
