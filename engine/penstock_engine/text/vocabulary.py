"""Reads the vocabulary of a tokenizer.json, which may be hostile. Also a command, `python -m`, for that.

Each byte of `[[[[…` needs 160 bytes of memory, and some content makes the tokenizers library panic. A large
file is therefore read by a process of its own with limited memory, whose failure becomes a refusal.
"""

import json
import resource
import subprocess
import sys
from pathlib import Path

from tokenizers import Tokenizer

# Largest file that is read without another process, whose start takes 0.2 s, in bytes. It needs at most 200
# MiB of memory.
MAX_OWN_BYTES = 1 << 20
# Limit of the process's memory, in bytes. A tokenizer of 262,000 tokens and 510,000 merges needs 360 MiB. The
# container of a preflight has 1 GiB, of which this leaves enough for the check of the model.
MAX_MEMORY_BYTES = 640 << 20
# Time in which a tokenizer is read, in seconds. The largest of real models take 2 on an idle machine.
TIMEOUT_S = 120.0
# Messages of Python and of the tokenizers library when the memory limit is reached.
OUT_OF_MEMORY = ("MemoryError", "memory allocation of")

Vocabulary = tuple[int, int | None]


class UnreadableTokenizerError(ValueError):
    """A tokenizer cannot be read. The message continues a sentence that begins with the name of its file."""


def read_vocabulary(path: Path, eos_token: str | None) -> Vocabulary:
    """The largest id of the vocabulary without added tokens, and the id of eos_token.

    Raises UnreadableTokenizerError, OSError.
    """
    with path.open("rb") as file:
        content = file.read(MAX_OWN_BYTES + 1)
    if len(content) > MAX_OWN_BYTES:
        return _read_in_process(path, eos_token)
    try:
        return _read(content, eos_token)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library's panics are no Exceptions
        raise UnreadableTokenizerError("cannot be read") from error


def _read_in_process(path: Path, eos_token: str | None) -> Vocabulary:
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__], input=json.dumps([str(path), eos_token]),
            capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise UnreadableTokenizerError(f"takes more than {TIMEOUT_S:.0f} s to be read") from error
    if done.returncode == 0:
        top, end = json.loads(done.stdout)
        return top, end
    if any(text in done.stderr for text in OUT_OF_MEMORY):
        raise UnreadableTokenizerError(
            f"needs more than {MAX_MEMORY_BYTES >> 20} MiB of memory to be read"
        )
    raise UnreadableTokenizerError("cannot be read")


def _read(content: bytes, eos_token: str | None) -> Vocabulary:
    tokenizer = Tokenizer.from_buffer(content)
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    end = None if eos_token is None else tokenizer.token_to_id(eos_token)
    return max(vocabulary.values(), default=-1), end


def main() -> None:
    """Print the vocabulary of the tokenizer that the input names, as JSON. Exits with 1 if that fails."""
    path, eos_token = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    print(json.dumps(_read(Path(path).read_bytes(), eos_token)))


if __name__ == "__main__":
    main()
