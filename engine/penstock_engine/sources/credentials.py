"""Reads credentials and settings of sources from a folder with a file for each, such as a mounted Secret."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from penstock_engine.sources.errors import FetchError

# Files whose content is the value of the variable of the same name.
VALUES = (
    "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "AWS_*", "AZURE_STORAGE_*", "GOOGLE_BASE_URL",
    "GOOGLE_SKIP_SIGNATURE",
    "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip
# Variables that name a file, by the name of that file.
PATHS = {
    "google.json": "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_APPLICATION_CREDENTIALS": "GOOGLE_APPLICATION_CREDENTIALS",
    ".netrc": "NETRC",
    "netrc": "NETRC",
    "ca.crt": "SSL_CERT_FILE",
}
# Variables whose value is the folder itself, by the name of a file that they expect in it.
FOLDERS = {".dockerconfigjson": "DOCKER_CONFIG", "config.json": "DOCKER_CONFIG"}
# Kubernetes mounts a Secret as links into a folder whose name begins so.
MOUNT_PREFIX = ".."
# Variables that clients prefer in lower case: one in the environment would win over the file.
LOWER_CASE = ("HTTPS_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Content of a folder of credentials.

    variables: values by name. ignored: names of files that are not a setting of a source.
    """

    variables: dict[str, str]
    ignored: tuple[str, ...]


def apply_credentials(folder: Path | None, say: Callable[[str], None]) -> tuple[str, ...]:
    """Set the variables of a folder in the environment of this process. Raises FetchError (BadCredentials).

    Returns the names of the files that are ignored. folder: None: there is none. Libraries read some
    variables when they are imported: it has to come before.
    """
    if folder is None:
        return ()
    credentials = read_credentials(folder)
    for name in credentials.ignored:
        say(f"Ignoring {name!r} in {folder}: it is not a setting of a source")
    for name in LOWER_CASE:
        if name in credentials.variables:
            os.environ.pop(name.lower(), None)
    os.environ.update(credentials.variables)
    return credentials.ignored


def read_credentials(folder: Path) -> Credentials:
    """The variables that the files of a folder set. Raises FetchError (BadCredentials)."""
    variables: dict[str, str] = {}
    ignored = []
    try:
        for path in sorted(folder.iterdir()):
            name = path.name
            if name.startswith(MOUNT_PREFIX):
                continue
            if not path.is_file():
                ignored.append(name)
            elif name in PATHS:
                variables[PATHS[name]] = str(path)
            elif name in FOLDERS:
                variables[FOLDERS[name]] = str(folder)
            elif any(fnmatchcase(name, pattern) for pattern in VALUES):
                variables[name] = _value(path)
            else:
                ignored.append(name)
    except OSError as error:
        place = error.filename or folder
        raise FetchError(
            "BadCredentials",
            f"{place} cannot be read: {os.strerror(error.errno or 0)}: mount the Secret there, readable for "
            f"user {os.geteuid()}",
        ) from error
    return Credentials(variables, tuple(ignored))


def _value(path: Path) -> str:
    """The value in a file, without a line break at its end. Raises FetchError (BadCredentials), OSError."""
    try:
        value = path.read_bytes().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        value = "\0"
    if not value.isprintable():
        raise FetchError(
            "BadCredentials",
            f"the value of {path.name} has a line break, or another character that is not text: write the "
            "value alone into the Secret",
        )
    return value
