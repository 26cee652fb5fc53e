"""`penstock keys`, also as `kubectl penstock keys`: API keys of tenants."""

import asyncio
import json
import math
import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, TypeVar

import typer
from rich import box
from rich.table import Table

from penstock.cli.keys.key_store import FoundKey, KeyStore
from penstock.cli.output.exit_status import exit_status
from penstock.cli.output.terminal import make_console
from penstock.clients.kubernetes.client import connect
from penstock.clients.machine.clock import unix_time
from penstock.core.formats.timestamps import timestamp
from penstock.core.tenants.api_key import (
    ID_BYTES,
    ID_CHARACTERS,
    KEY_ID,
    KEYS_NAMESPACE,
    MAX_NAME_CHARACTERS,
    SALT_BYTES,
    SECRET_BYTES,
    ApiKey,
    StoredKey,
    make_api_key,
    parse_api_key,
    parse_lifetime_s,
    store_key,
)
from penstock.errors import KubeError

app = typer.Typer(no_args_is_help=True)

T = TypeVar("T")


def _lifetime_s(text: str) -> float:
    try:
        return parse_lifetime_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _name(text: str) -> str:
    if not 0 < len(text) <= MAX_NAME_CHARACTERS or not text.isprintable():
        raise typer.BadParameter(f"a name has 1 to {MAX_NAME_CHARACTERS} printable characters")
    return text


def _key_id(text: str) -> str:
    if key := parse_api_key(text):
        raise typer.BadParameter(f"this is a whole key: give its id alone, {key.id}")
    if not KEY_ID.fullmatch(text):  # it may be a part of a secret, so no message repeats it
        raise typer.BadParameter(
            f"an id of a key has {ID_CHARACTERS} characters of a-z and 2-7: see `penstock keys list`"
        )
    return text


KeysNamespace = Annotated[
    str, typer.Option(help="Namespace of the Secrets of keys, as the gateway has it.")
]
KeyId = Annotated[
    str,
    typer.Argument(
        parser=_key_id, metavar="KEY_ID", help="Id of the key: what is between psk_ and the next _."
    ),
]
Expires = Annotated[
    float | None,
    typer.Option(metavar="DURATION", parser=_lifetime_s, help="Lifetime, such as 90d or 12h."),
]


@app.callback()
def _group() -> None:
    """Create, list, rotate and revoke API keys of tenants."""


@app.command()
def create(
    tenant: Annotated[str, typer.Argument(help="Name of the Tenant.")],
    name: Annotated[
        str,
        typer.Option(parser=_name, metavar="TEXT", help="What the key is for."),
    ],
    expires: Expires = None,
    secret_name: Annotated[
        str | None, typer.Option(help="Secret for the key, if the tenant has several.")
    ] = None,
    keys_namespace: KeysNamespace = KEYS_NAMESPACE,
) -> None:
    """Create an API key, and print it: it is shown this once.

    Without --expires it is valid until it is revoked.
    """
    key, stored = _new_key(name, expires)

    async def add(store: KeyStore) -> None:
        await store.add(await store.secret_of(tenant, secret_name), stored)

    _run(keys_namespace, add)
    _show(key, f"API key {key.id} of the tenant {tenant}, {_validity(stored.hash.expires_s)}")


@app.command("list")
def list_keys(
    tenant: Annotated[str | None, typer.Argument(help="Only keys of this Tenant.")] = None,
    output: Annotated[
        Literal["table", "json"], typer.Option("--output", "-o", help="Format of the output.")
    ] = "table",
    keys_namespace: KeysNamespace = KEYS_NAMESPACE,
) -> None:
    """List keys by their ids, without their secrets."""
    found = _run(keys_namespace, lambda store: store.find_all())
    found = [each for each in found if tenant in (None, each.tenant)]
    if output == "json":
        typer.echo(json.dumps([_as_object(each) for each in found], indent=2))
    elif found:
        _print_table(found)
    else:
        typer.echo(f"there are no keys{f' of {tenant}' if tenant else ''}", err=True)


@app.command()
def rotate(
    key_id: KeyId,
    overlap: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Time for which the old key is still valid."),
    ] = "24h",
    expires: Expires = None,
    keys_namespace: KeysNamespace = KEYS_NAMESPACE,
) -> None:
    """Create a key in place of another, and print it. The old one expires after the overlap.

    The new key has the name of the old one, and the lifetime that it was created with, unless --expires is
    given.
    """
    key, stored = _new_key("", expires)
    at_s = unix_time() + _lifetime_s(overlap)
    new, old = _run(keys_namespace, lambda store: store.rotate(key_id, stored, at_s))
    until_s = old.hash.expires_s
    end = (
        f"has expired at {timestamp(until_s)}"
        if until_s <= unix_time()
        else f"is {_validity(until_s)}"
    )
    validity = _validity(new.hash.expires_s)
    _show(key, f"API key {key.id}, {validity}, in place of {key_id}, which {end}")


@app.command()
def revoke(key_id: KeyId, keys_namespace: KeysNamespace = KEYS_NAMESPACE) -> None:
    """Delete a key: gateways refuse it within 2 s."""
    _run(keys_namespace, lambda store: store.remove(key_id))
    typer.echo(f"API key {key_id} is revoked", err=True)


@app.command()
def prune(keys_namespace: KeysNamespace = KEYS_NAMESPACE) -> None:
    """Delete the keys that have expired."""
    num_removed = _run(keys_namespace, lambda store: store.prune(unix_time()))
    typer.echo(f"expired keys deleted: {num_removed}", err=True)


def _new_key(name: str, lifetime_s: float | None) -> tuple[ApiKey, StoredKey]:
    """A new key, and what is stored of it."""
    now_s = unix_time()
    key = make_api_key(secrets.token_bytes(ID_BYTES + SECRET_BYTES))
    expires_s = math.inf if lifetime_s is None else now_s + lifetime_s
    return key, store_key(key, secrets.token_bytes(SALT_BYTES), name, now_s, expires_s)


def _run(namespace: str, work: Callable[[KeyStore], Awaitable[T]]) -> T:
    """Work with the cluster's keys. Exits with a message if that fails."""

    async def connected() -> T:
        async with await connect(user_agent="penstock-keys") as kube:
            return await work(KeyStore(kube, namespace))

    try:
        return asyncio.run(connected())
    except KubeError as error:
        typer.echo(f"penstock keys: {error}", err=True)
        raise typer.Exit(exit_status(error)) from error


def _show(key: ApiKey, text: str) -> None:
    """Print a new key alone to standard output, so that scripts can take it."""
    typer.echo(f"{text}. It is not shown again:", err=True)
    typer.echo(key.text)


def _validity(expires_s: float) -> str:
    return (
        "valid until it is revoked"
        if expires_s == math.inf
        else f"valid until {timestamp(expires_s)}"
    )


def _state(found: FoundKey) -> str:
    if not found.tenant:
        return "unused: no Tenant has its Secret"
    return "expired" if found.key.hash.expires_s <= unix_time() else "valid"


def _as_object(found: FoundKey) -> dict[str, str | None]:
    expires_s = found.key.hash.expires_s
    return {
        "id": found.key.id,
        "name": found.key.name,
        "tenant": found.tenant or None,
        "secret": found.secret,
        "created": timestamp(found.key.created_s),
        "expires": None if expires_s == math.inf else timestamp(expires_s),
        "state": _state(found),
    }


def _print_table(found: list[FoundKey]) -> None:
    columns = ("ID", "NAME", "TENANT", "SECRET", "CREATED", "EXPIRES", "STATE")
    table = Table(*columns, box=box.SIMPLE, pad_edge=False)
    for each in found:
        table.add_row(*(value or "-" for value in _as_object(each).values()))
    make_console().print(table)
