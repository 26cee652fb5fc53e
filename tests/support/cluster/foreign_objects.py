"""Penstock objects as the owner of another namespace may create them: valid or not, with contested names."""

from random import Random

from tests.support.cluster.manifests import manifest

from penstock.core.spec.service import (
    ENGINE_CONTAINER,
    MANAGED_BY,
    MANAGED_LABEL,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVE,
    SERVICE_LABEL,
    Object,
)

# Names of the objects of the first namespace, which are their model names too, and one that is free.
SERVICE, ADAPTER, ROUTE = "base", "sql", "front"
NAMES = (SERVICE, ADAPTER, ROUTE, "other")
URIS = ("pvc://none/model", "file:///etc", "nothing", "")
BACKENDS = tuple(
    {"kind": kind, "name": name}
    for kind in ("InferenceService", "LoraAdapter", "Secret")
    for name in NAMES
)
# Arguments of a pod that looks like an engine: none, usual ones, and some that no engine has.
ARGUMENTS: tuple[list[str], ...] = (
    [],
    ["--max-loras=4"],
    [f"--max-loras={'9' * 5000}"],
    ["--max-cpu-loras=x", ""],
)


def draw_object(random: Random, name: str) -> Object:
    """Draw one object. name: of its metadata; a drawn one of NAMES instead in one of three cases."""
    name = random.choice(NAMES) if random.random() < 1 / 3 else name
    draw = random.choice((_service, _route, _adapter, _pod))
    return draw(random, name)


def _service(random: Random, name: str) -> Object:
    spec: Object = {"model": _model(random), "resources": {"limits": {"memory": "1Gi"}}}
    spec |= random.choice(
        (
            {},
            {"engine": {"lora": {"maxAdapters": 2}}},
            {"runtime": {"type": "Custom", "custom": {"image": "x"}}, "engine": {"maxNumSeqs": 2}},
            {"template": {"spec": {"terminationGracePeriodSeconds": 5}}},
            {"template": {"spec": {"hostNetwork": True}}},
            {"scaling": {"minReplicas": 0}},
            {"scaling": {"mode": "External"}, "replicas": 0},
        )
    )
    return manifest("InferenceService", name, spec)


def _route(random: Random, name: str) -> Object:
    rules = [
        {"name": f"rule-{number}", "backendRefs": random.sample(BACKENDS, random.randint(1, 2))}
        for number in range(random.randint(0, 2))
    ]
    return manifest("ModelRoute", name, {"modelName": random.choice(NAMES), "rules": rules})


def _adapter(random: Random, name: str) -> Object:
    spec: Object = {"serviceRef": {"name": random.choice(NAMES)}, "model": _model(random)}
    spec |= random.choice(({}, {"pool": "Dedicated"}, {"placement": {"policy": "All"}}))
    return manifest("LoraAdapter", name, spec)


def _model(random: Random) -> Object:
    named = random.choice(({}, {"name": random.choice(NAMES)}, {"name": "not a name!"}))
    return {"uri": random.choice(URIS)} | named


def _pod(random: Random, name: str) -> Object:
    """A pod with the labels of an engine, which no scheduler looks at."""
    labels = {
        MANAGED_LABEL: MANAGED_BY, SERVICE_LABEL: random.choice(NAMES), ROLE_LABEL: SERVE,
        REVISION_LABEL: "r1",
    }  # fmt: skip
    container = {"name": ENGINE_CONTAINER, "image": "x", "args": random.choice(ARGUMENTS)}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
