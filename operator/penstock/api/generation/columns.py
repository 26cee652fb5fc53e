"""Columns that `kubectl get` prints of each kind: name, type, path and priority."""

Columns = tuple[tuple[str, str, str, int], ...]

COLUMNS: Columns = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Desired", "integer", ".status.desiredReplicas", 0),
    ("Ready-Replicas", "integer", ".status.readyReplicas", 0),
    ("Rollout", "string", ".status.rollout.phase", 1),
    ("URL", "string", ".status.url", 1),
    ("Model", "string", ".status.modelName", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)

ROUTE_COLUMNS: Columns = (
    ("Model", "string", ".spec.modelName", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)

ADAPTER_COLUMNS: Columns = (
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Service", "string", ".spec.serviceRef.name", 0),
    ("Model", "string", ".status.modelName", 0),
    ("Loaded", "integer", ".status.loadedReplicas", 0),
    ("Wanted", "integer", ".status.desiredReplicas", 0),
    ("Demand", "string", ".status.demand.requestsPerSecond", 0),
    ("Pool", "string", ".status.pool", 1),
    ("Last-Used", "date", ".status.lastUsedTime", 1),
    ("URI", "string", ".spec.model.uri", 1),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)

TENANT_COLUMNS: Columns = (
    ("Priority", "integer", ".spec.priority", 0),
    ("Weight", "integer", ".spec.fairShareWeight", 0),
    ("Suspend", "string", ".spec.suspend", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)

EXTERNAL_COLUMNS: Columns = (
    ("API", "string", ".spec.api", 0),
    ("Model", "string", ".spec.model", 0),
    ("URL", "string", ".spec.url", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
