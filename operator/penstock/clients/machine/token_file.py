"""Reads the file of a token that two servers share."""

from pathlib import Path

from penstock.core.batches.shared_token import parse_token
from penstock.errors import TokenFileError


def read_token(file: Path) -> bytes:
    """Read the token of a file. Raises TokenFileError."""
    try:
        return parse_token(file.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TokenFileError(f"the token file {file}: {reason}") from None
