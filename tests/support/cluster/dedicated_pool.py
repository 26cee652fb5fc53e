"""Changes of an adapter after which the operator creates, changes and deletes its dedicated pool."""

from penstock.clients.kubernetes.resources import INFERENCE_SERVICES
from penstock.core.adapters.dedicated import dedicated_name
from penstock.core.spec.service import Object
from penstock.demo.stage import Stage, poll_until


async def change_dedicated_pool(stage: Stage, service: str, adapter: str) -> None:
    """Give a shared adapter of the namespace default a dedicated pool, change that, and take it away."""
    pool = dedicated_name(service, adapter)
    specs: tuple[tuple[Object, int | None], ...] = (
        ({"pool": "Dedicated"}, 1),
        ({"dedicated": {"maxReplicas": 2}}, 2),
        ({"pool": "Shared", "dedicated": None}, None),
    )
    for spec, most in specs:
        stage.patch(adapter, spec, kind="lora")

        async def is_done(most: int | None = most) -> bool:
            """Whether the pool has this maximum of replicas; None: whether there is no pool."""
            services, _ = await stage.kube.list(INFERENCE_SERVICES, "default")
            found = {each["metadata"]["name"]: each["spec"]["scaling"] for each in services}
            return bool(found.get(pool, {}).get("maxReplicas") == most)

        await poll_until(is_done, within_s=30, what=f"{pool} after {spec}")
