"""Hypothesis strategies of `spec.template.spec`: values that would give rights, and values of any type."""

from typing import Any

from hypothesis import strategies as st

SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, 1000, 8000, 1.5, "", "0", "true"])
JUNK = SCALARS | st.just([]) | st.just({}) | st.just([{}]) | st.just({"$patch": "replace"})
NAMES = st.sampled_from(["engine", "side", "model", "tmp", "data"]) | JUNK


def fields(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Maps with some of the fields, each with a value of its own or any other."""
    return st.fixed_dictionaries({}, optional={k: v | JUNK for k, v in values.items()})


PROFILES = fields(type=st.sampled_from(["RuntimeDefault", "Localhost", "Unconfined"]))
DROPS = st.lists(st.sampled_from(["ALL", "KILL"]), max_size=2)
CONTEXTS = fields(
    privileged=st.booleans(), allowPrivilegeEscalation=st.booleans(), runAsNonRoot=st.booleans(),
    runAsUser=st.integers(-1, 2), runAsGroup=st.integers(0, 2), procMount=st.just("Unmasked"),
    capabilities=fields(add=DROPS, drop=DROPS), seccompProfile=PROFILES, appArmorProfile=PROFILES,
    readOnlyRootFilesystem=st.booleans(), fsGroup=st.integers(0, 2), seLinuxOptions=JUNK,
)  # fmt: skip
PORTS = st.lists(
    fields(
        name=st.sampled_from(["http", "metrics"]), containerPort=st.sampled_from([8000, 9000]),
        hostPort=st.just(9000), protocol=st.sampled_from(["TCP", "UDP"]),
    ),
    max_size=2,
)  # fmt: skip
MOUNTS = st.lists(
    fields(
        name=NAMES, mountPath=st.sampled_from(["/models", "/tmp", "/x"]), readOnly=st.booleans(),
        mountPropagation=st.just("Bidirectional"),
    ),
    max_size=2,
)  # fmt: skip
PROBES = fields(httpGet=fields(host=st.just("1.1.1.1"), path=st.just("/")), exec=JUNK)
CONTAINERS = st.lists(
    fields(
        name=NAMES, image=st.just("busybox"), securityContext=CONTEXTS, ports=PORTS, volumeMounts=MOUNTS,
        readinessProbe=PROBES, lifecycle=fields(preStop=PROBES), env=JUNK,
    ),
    max_size=3,
)  # fmt: skip
VOLUMES = st.lists(
    fields(
        name=NAMES, hostPath=st.just({"path": "/"}), emptyDir=st.just({}), nfs=JUNK, secret=JUNK,
        persistentVolumeClaim=JUNK,
        projected=fields(sources=st.lists(fields(secret=JUNK, serviceAccountToken=JUNK), max_size=2)),
    ),
    max_size=2,
)  # fmt: skip
OVERRIDES = fields(
    containers=CONTAINERS, volumes=VOLUMES, securityContext=CONTEXTS, hostNetwork=st.booleans(),
    hostPID=st.booleans(), hostUsers=st.booleans(), serviceAccountName=JUNK, initContainers=CONTAINERS,
    automountServiceAccountToken=st.booleans(), nodeSelector=JUNK, tolerations=JUNK, restartPolicy=JUNK,
)  # fmt: skip
# Few of OVERRIDES pass: these have fields of allowed names only.
ALLOWED_CONTEXTS = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.just(False),
        "allowPrivilegeEscalation": st.just(False),
        "runAsNonRoot": st.just(True),
        "runAsUser": st.integers(1, 3),
        "capabilities": st.sampled_from([{}, {"drop": ["ALL"]}, {"drop": ["KILL", "ALL"]}]),
        "seccompProfile": st.sampled_from(
            [{"type": "RuntimeDefault"}, {"type": "Localhost", "localhostProfile": "a"}]
        ),
    },
)
LIKELY_OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "securityContext": ALLOWED_CONTEXTS,
        "volumes": st.none() | VOLUMES,
        "containers": st.lists(
            st.fixed_dictionaries(
                {"name": st.sampled_from(["engine", "side"])},
                optional={
                    "image": st.just("busybox"),
                    "securityContext": ALLOWED_CONTEXTS,
                    "volumeMounts": st.none() | MOUNTS,
                    "ports": PORTS,
                    "readinessProbe": PROBES,
                },
            ),
            max_size=3,
        ),
    },
)
