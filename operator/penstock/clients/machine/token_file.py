"""The file of a token that two servers share. It may be replaced."""

import asyncio
import logging
from pathlib import Path

from penstock.core.batches.shared_token import SharedToken, parse_token
from penstock.errors import TokenFileError

logger = logging.getLogger(__name__)

# Interval between two checks of the file, in seconds. The kubelet takes up to two minutes to renew the volume
# of a Secret.
CHECK_INTERVAL_S = 5.0


def read_token(file: Path) -> SharedToken:
    """Read the token of a file. Raises TokenFileError."""
    return SharedToken(_read(file))


async def follow_token(token: SharedToken, file: Path) -> None:
    """Give a token the value of its file, forever. One that cannot be used is logged, and changes nothing."""
    problem = ""
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        try:
            value = await asyncio.to_thread(_read, file)
        except TokenFileError as error:
            if str(error) != problem:
                logger.error("the old token is kept: %s", error)
            problem = str(error)
            continue
        problem = ""
        if value != token.value:
            token.value = value
            logger.info("new token loaded")


def _read(file: Path) -> bytes:
    try:
        return parse_token(file.read_bytes())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TokenFileError(f"the token file {file}: {reason}") from None
