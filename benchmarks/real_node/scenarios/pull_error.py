"""An image that cannot be pulled: what the conditions say, and that a mended spec is enough."""

from benchmarks.real_node.lab import Lab
from benchmarks.real_node.two_engines import (
    READY_S,
    check_outcomes,
    condition_with,
    requests,
    service,
)

NAME = "pull-error"
MISSING = "localhost/missing:1"
ONE = {"minReplicas": 1, "maxReplicas": 1}


async def run(lab: Lab) -> dict[str, object]:
    async with lab.namespace("pull") as namespace:
        lab.stage.apply(
            service(NAME, scaling=ONE, template=_template(MISSING)), namespace=namespace
        )
        first = await condition_with(lab, NAME, namespace, "Ready", "ErrImagePull")
        assert MISSING in first["message"], first
        lab.stage.patch(NAME, {"template": None}, namespace=namespace)
        mended_s = await lab.stage.wait_until_ready(NAME, within_s=READY_S, namespace=namespace)
        change = {"template": _template(MISSING), "rollout": {"progressDeadline": "60s"}}
        async with requests(lab, NAME) as load:
            lab.stage.patch(NAME, change, namespace=namespace)
            rejected = await condition_with(lab, NAME, namespace, "Stalled", "Rejected")
            lab.stage.patch(NAME, {"template": None}, namespace=namespace)
            await lab.stage.wait_for_reason(
                NAME, "Stable", kind="RolledOut", within_s=READY_S, namespace=namespace
            )
        assert "ErrImagePull" in rejected["message"], rejected
        return check_outcomes(load) | {
            "message": first["message"],
            "ready_after_change_s": round(mended_s, 1),
            "message_of_rollout": rejected["message"],
        }


def _template(image: str) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "engine", "image": image}]}}
