"""Fetches the signing keys of an OIDC issuer over HTTP."""

import asyncio
import ipaddress
import json
from collections.abc import Mapping
from urllib.parse import urlsplit

import aiohttp

from penstock.gateway.tenants.signing_keys import KeySetError, SigningKey, read_keys

# Time limit for the documents of an issuer together, in seconds.
FETCH_TIMEOUT_S = 5.0
# Bound on a document. Key sets have some KiB, with certificates up to 100.
MAX_DOCUMENT_BYTES = 1 << 20
DISCOVERY_PATH = "/.well-known/openid-configuration"


class IssuerUnavailable(Exception):
    """The keys of an issuer cannot be fetched. The message says why, and has nothing of its answer."""


async def fetch_keys(issuer: str, jwks_url: str) -> Mapping[str, SigningKey]:
    """Fetch an issuer's keys by their `kid`. jwks_url: empty to find it by OIDC discovery.

    Raises IssuerUnavailable.
    """
    url = jwks_url
    try:
        # A session for each fetch, of which there is one in ten minutes: it shares nothing with other issuers
        async with asyncio.timeout(FETCH_TIMEOUT_S), aiohttp.ClientSession() as session:
            url = url or await _discovered_url(session, issuer)
            return read_keys(await _document(session, url))
    except KeySetError as error:
        raise IssuerUnavailable(f"the document at {url} {error}") from None
    except TimeoutError:
        raise IssuerUnavailable(f"no answer in {FETCH_TIMEOUT_S:g} s") from None


async def _discovered_url(session: aiohttp.ClientSession, issuer: str) -> str:
    url = issuer.rstrip("/") + DISCOVERY_PATH
    try:
        found = json.loads(await _document(session, url))
        named, jwks_url = found["issuer"], found["jwks_uri"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IssuerUnavailable(f"the document at {url} has no issuer and jwks_uri") from None
    if named != issuer:  # OIDC discovery, 4.3: another one's keys would be taken for this issuer's
        raise IssuerUnavailable(f"the document at {url} is of another issuer")
    if not isinstance(jwks_url, str) or urlsplit(issuer).scheme != jwks_url.partition(":")[0]:
        raise IssuerUnavailable(f"the document at {url} has a jwks_uri that is no https URL")
    return jwks_url


async def _document(session: aiohttp.ClientSession, url: str) -> bytes:
    if not is_allowed_url(url):
        raise IssuerUnavailable(f"{url[:200]} is no https URL")
    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status != 200:
                raise IssuerUnavailable(f"{url} answers with status {response.status}")
            content = bytearray()
            async for chunk in response.content.iter_any():
                content += chunk
                if len(content) > MAX_DOCUMENT_BYTES:
                    raise IssuerUnavailable(f"the document at {url} is larger than 1 MiB")
            return bytes(content)
    except (aiohttp.ClientError, OSError, ValueError) as error:
        if isinstance(error, TimeoutError):
            raise
        raise IssuerUnavailable(f"{url} cannot be read: {type(error).__name__}") from None


def is_allowed_url(url: str) -> bool:
    """Whether documents may be fetched from a URL: by https, from this machine by http too."""
    try:
        parts = urlsplit(url)
        return parts.hostname is not None and (
            parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname))
        )
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
