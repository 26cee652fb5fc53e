"""Reads keys of S3 from a credentials file, which the object-store library does not."""

import configparser
import os
from pathlib import Path

from penstock_engine.sources.errors import FetchError

KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
FILE = "AWS_SHARED_CREDENTIALS_FILE"


def file_credentials() -> dict[str, str]:
    """Keys of the profile AWS_PROFILE in the file AWS_SHARED_CREDENTIALS_FILE; none if it is not set.

    Keys of the environment come first. Raises FetchError (BadCredentialsFile).
    """
    path = os.environ.get(FILE)
    if not path or os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    profile = os.environ.get("AWS_PROFILE") or "default"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(Path(path).read_text())
        section = parser[profile]
    except (OSError, ValueError, LookupError, configparser.Error) as error:
        raise FetchError(
            "BadCredentialsFile",
            f"the file of {FILE} cannot be read, or has no profile {profile!r}",
        ) from error
    return {name: section[name] for name in KEYS if name in section}
