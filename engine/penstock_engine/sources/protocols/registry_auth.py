"""Credentials of an OCI registry: users in Docker's configuration file, and bearer tokens."""

import base64
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from penstock_engine.sources.errors import FetchError
from penstock_engine.sources.protocols.http_client import HttpClient

# Names a folder with config.json, such as a mounted Secret of type kubernetes.io/dockerconfigjson.
FOLDER = "DOCKER_CONFIG"
FILES = ("config.json", ".dockerconfigjson")
PARAMETER = re.compile(r'(\w+)="([^"]*)"')


def basic_authorization(host: str) -> str | None:
    """The header of a registry's user and password; None: there are none. Raises FetchError."""
    folder = Path(os.environ.get(FOLDER) or Path.home() / ".docker")
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        return None
    try:
        entries = json.loads(path.read_bytes()).get("auths", {})
        entry = next((each for key, each in entries.items() if _host_of(key) == host), None)
        if entry is None:
            return None
        auth = (
            entry.get("auth")
            or base64.b64encode(f"{entry['username']}:{entry['password']}".encode()).decode()
        )
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise FetchError(
            "BadCredentialsFile", f"the file of {FOLDER} cannot be read as Docker's configuration"
        ) from error
    return f"Basic {auth}"


def authorization(client: HttpClient, host: str, challenge: str) -> str:
    """Get the value of the Authorization header for a registry. Raises FetchError.

    challenge: WWW-Authenticate header of its answer. A token is requested as the configured user, or without.
    """
    basic = basic_authorization(host)
    scheme, _, rest = challenge.partition(" ")
    parameters = dict(PARAMETER.findall(rest))
    if scheme.lower() == "basic" and basic is not None:
        return basic
    realm = parameters.get("realm", "")
    if scheme.lower() != "bearer" or urlsplit(realm).scheme not in ("https", "http"):
        raise FetchError(
            "Unauthorized",
            f"{host} asks for credentials: add it to Docker's configuration in {FOLDER}",
        )
    if urlsplit(realm).scheme == "http" and not is_loopback(urlsplit(realm).hostname or ""):
        raise FetchError(
            "InsecureRedirect", f"{host} asks for a token over http, where anyone could read it"
        )
    query = {name: parameters[name] for name in ("service", "scope") if name in parameters}
    headers: Mapping[str, str] = {"Authorization": basic} if basic else {}
    body, _ = client.text(f"{realm}?{urlencode(query)}", headers)
    try:
        content = json.loads(body)
        return f"Bearer {content.get('token') or content['access_token']}"
    except (ValueError, LookupError, AttributeError) as error:
        raise FetchError(
            "UnexpectedAnswer", f"{host} gives no token: check that it is a registry"
        ) from error


def _host_of(key: str) -> str:
    """The registry that an entry of the file is for: it may be written as a URL."""
    return urlsplit(f"//{key.partition('://')[2] or key}").netloc


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, whose registries are used without TLS."""
    return host == "localhost" or host.startswith("127.") or host in ("::1", "[::1]")
