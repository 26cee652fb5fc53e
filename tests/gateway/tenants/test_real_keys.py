"""API keys in a real cluster: made by the command's store, used at gateways, and revoked."""

import asyncio
import contextlib
import math
import secrets

import pytest
from tests.support.gateway_callers import bearer

from penstock.cli.keys.key_store import KeyStore
from penstock.clients.kubernetes.resources import SECRETS, TENANTS
from penstock.core.tenants.api_key import (
    ID_BYTES,
    SALT_BYTES,
    SECRET_BYTES,
    SECRET_TYPE,
    make_api_key,
    store_key,
)
from penstock.errors import KubeError, NotFound, Rejected

pytestmark = pytest.mark.cluster

NUM_GATEWAYS = 2
# Time in which each gateway must refuse a revoked key.
REVOKED_WITHIN_S = 2.0


def new_key(name="ci", expires_s=math.inf):
    """A key with what is stored of it."""
    key = make_api_key(secrets.token_bytes(ID_BYTES + SECRET_BYTES))
    return key, store_key(key, secrets.token_bytes(SALT_BYTES), name, 1_000.0, expires_s)


async def create_tenant(kube, name, secret):
    """Create a Tenant with a Secret of keys, which may use the namespace default."""
    identity = {"name": "keys", "type": "APIKey", "apiKey": {"secretName": secret}}
    await kube.create(
        TENANTS,
        None,
        {
            "apiVersion": "serving.penstock.dev/v1alpha1",
            "kind": "Tenant",
            "metadata": {"name": name},
            "spec": {"identities": [identity], "access": [{"namespace": "default"}]},
        },
    )


@pytest.fixture
async def tenant(kube):
    """The name of a Tenant with the Secret of its name."""
    name = f"t-{secrets.token_hex(4)}"
    await create_tenant(kube, name, name)
    yield name
    await kube.delete(TENANTS, None, name)


@pytest.fixture
async def gateways(kube, namespace, start_gateway, start_engine):
    """Gateways that follow the Tenants, and the keys in the test's namespace."""
    engine = await start_engine()
    fronts = [await start_gateway(engine) for _ in range(NUM_GATEWAYS)]
    following = []
    for front in fronts:
        authenticator = front.gateway.state.authenticator
        authenticator.tenants.current = None
        following.append(asyncio.create_task(authenticator.follow(kube, namespace)))
    yield fronts
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)


async def status(front, key):
    async with front.client.post(
        front.url + "/v1/completions", json={"model": "chat"}, headers=bearer(key)
    ) as got:
        return got.status


async def all_answer(fronts, key, wanted, within_s=10.0):
    """Wait until all gateways answer a key with a status."""
    async with asyncio.timeout(within_s):
        for front in fronts:
            while await status(front, key) != wanted:  # noqa: ASYNC110 - it is looked at from outside
                await asyncio.sleep(0.02)


async def test_a_key_is_refused_at_every_gateway_after_it_is_revoked(
    kube, namespace, tenant, gateways
):
    store = KeyStore(kube, namespace)
    secret = await store.secret_of(tenant, None)
    (first, stored), (second, also_stored) = new_key(), new_key()
    await asyncio.gather(store.add(secret, stored), store.add(secret, also_stored))
    await all_answer(gateways, first, 200)
    await all_answer(gateways, second, 200)
    await store.remove(first.id)
    await all_answer(gateways, first, 401, REVOKED_WITHIN_S)
    assert await status(gateways[0], second) == 200
    suspended = {"spec": {"suspend": "RejectNew"}}
    await kube.merge(TENANTS, None, tenant, suspended, manager="test")
    await all_answer(gateways, second, 403, REVOKED_WITHIN_S)
    await kube.merge(TENANTS, None, tenant, {"spec": {"suspend": "Never"}}, manager="test")
    await all_answer(gateways, second, 200)
    await kube.delete(SECRETS, namespace, secret)
    await all_answer(gateways, second, 401, REVOKED_WITHIN_S)


async def test_deleted_tenant_lets_nobody_in(kube, namespace, tenant, gateways):
    store = KeyStore(kube, namespace)
    key, stored = new_key()
    await store.add(tenant, stored)
    await all_answer(gateways, key, 200)
    await kube.delete(TENANTS, None, tenant)
    await all_answer(gateways, key, 401, REVOKED_WITHIN_S)


async def test_no_key_is_made_with_the_rights_of_another_tenant(kube, namespace, tenant):
    store, younger = (
        KeyStore(kube, namespace),
        f"{tenant}-2",
    )  # of one second the first by name is older
    await create_tenant(kube, younger, tenant)
    with pytest.raises(KubeError, match=f"are those of the older Tenant {tenant}: "):
        await store.secret_of(younger, None)
    assert await store.secret_of(tenant, None) == tenant
    await kube.delete(TENANTS, None, younger)
    with pytest.raises(NotFound, match=f"there is no Tenant {younger}: "):
        await store.secret_of(younger, None)


async def test_keys_that_are_added_at_the_same_time_are_all_there(kube, namespace):
    store = KeyStore(kube, namespace)
    made = [new_key(f"key {number}") for number in range(20)]
    await asyncio.gather(*(store.add("shared", stored) for _, stored in made))
    found = {each.key.id: each.key for each in await store.find_all()}
    assert found == {stored.id: stored for _, stored in made}


async def test_rotation_ends_the_old_key_and_keeps_name_and_lifetime(kube, namespace):
    store = KeyStore(kube, namespace)
    old, stored = new_key("ci", 5_000.0)
    await store.add("mine", stored)
    new = make_api_key(secrets.token_bytes(ID_BYTES + SECRET_BYTES))
    successor = store_key(new, bytes(SALT_BYTES), "", 2_000.0)
    added, ending = await store.rotate(old.id, successor, 3_000.0)
    assert ending.hash.expires_s == 3_000.0
    found = {each.key.id: each.key for each in await store.find_all()}
    assert (found[new.id], found[old.id]) == (added, ending)
    assert (found[new.id].name, found[new.id].hash.expires_s) == ("ci", 6_000.0)
    assert found[new.id].hash.matches(new.secret)
    assert await store.prune(3_000.0) == 1
    assert [each.key.id for each in await store.find_all()] == [new.id]


@pytest.mark.parametrize(
    ("expires_s", "next_expires_s"), [(math.inf, math.inf), (5_000.0, 6_500.0)]
)
async def test_a_key_that_is_rotated_again_gives_its_first_lifetime(
    kube, namespace, expires_s, next_expires_s
):
    store = KeyStore(kube, namespace)
    old, stored = new_key("ci", expires_s)
    await store.add("mine", stored)
    for created_s in (2_000.0, 2_500.0):
        new = make_api_key(secrets.token_bytes(ID_BYTES + SECRET_BYTES))
        await store.rotate(old.id, store_key(new, bytes(SALT_BYTES), "", created_s), 3_000.0)
    found = {each.key.id: each.key for each in await store.find_all()}
    assert (found[old.id].hash.expires_s, found[new.id].hash.expires_s) == (3_000.0, next_expires_s)


async def test_a_key_that_is_revoked_meanwhile_is_not_brought_back(kube, namespace, monkeypatch):
    store = KeyStore(kube, namespace)
    key, stored = new_key()
    await store.add("mine", stored)
    find = store._find

    async def find_and_revoke(key_id):
        found = await find(key_id)
        with contextlib.suppress(KubeError):
            await kube.merge(SECRETS, namespace, "mine", {"data": {key_id: None}}, manager="other")
        return found

    monkeypatch.setattr(store, "_find", find_and_revoke)
    with pytest.raises(KubeError, match="no key has the id"):
        await store.rotate(key.id, new_key()[1], 2_000.0)
    assert await store.find_all() == []


async def test_a_full_secret_and_one_of_another_type_are_explained(kube, namespace):
    store = KeyStore(kube, namespace)
    half = "A" * (700_000 // 4 * 4)  # in base64; two of them have 1,050,000 bytes
    body = {"metadata": {"name": "full"}, "type": SECRET_TYPE, "data": {"first": half}}
    await kube.create(SECRETS, namespace, body)
    await kube.merge(
        SECRETS, namespace, "full", {"data": {"second": half[:698_000]}}, manager="test"
    )
    with pytest.raises(Rejected, match="the Secret full is full"):
        await store.add("full", new_key("x" * 2_000)[1])
    await kube.create(SECRETS, namespace, {"metadata": {"name": "other"}, "type": "Opaque"})
    with pytest.raises(Rejected, match="not of the type"):
        await store.add("other", new_key()[1])


async def test_a_missing_namespace_is_explained(kube):
    with pytest.raises(KubeError, match="the namespace t-none of API keys does not exist"):
        await KeyStore(kube, "t-none").add("mine", new_key()[1])
