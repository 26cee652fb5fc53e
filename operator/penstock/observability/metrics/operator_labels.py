"""Labels that only metrics of the operator have."""

from typing import get_args

from penstock.core.observed.rollout_phases import PHASES
from penstock.core.reconcile.condition_types import TYPES
from penstock.core.scaling.rule import DecisionCode
from penstock.observability.metrics.specs import Label

LOOP = Label(
    "loop",
    (
        "adapters", "fetches", "judge", "lease", "memory", "metrics", "observer", "policies", "reconcile",
        "recorder", "routes", "scaler", "tenants",
    ),
)  # fmt: skip
PASS = Label("loop", ("adapters", "scaler", "judge"))
WATCHED = Label(
    "resource",
    (
        "deployments",
        "externalmodels",
        "loraadapters",
        "modelroutes",
        "pods",
        "resourcequotas",
        "tenants",
    ),
)
LOAD_OUTCOME = Label("outcome", ("ok", "failed"))
OUTCOME = Label("outcome", ("ok", "retry", "error"))
VERB = Label("verb", ("get", "list", "watch", "create", "update", "patch", "delete"))
CODE = Label("code", "HTTP statuses of the API server; `none` without a response")
VARIANT = Label("variant", "variants of the spec, and removed ones that have pods; else empty")
DECISION_REASON = Label("reason", get_args(DecisionCode))
FETCH_REASON = Label("reason", "`Fetched`, reasons of sources such as `GatedModel`, or `Other`")
DIRECTION = Label("direction", ("up", "down"))
ADAPTER = Label("adapter", "LoraAdapters whose version is rolled out, 200 at most")
PHASE = Label("phase", tuple(PHASES))
COHORT = Label("cohort", ("Primary", "Control"))
TEST = Label("metric", "tests of the canary's judge")
BOUND = Label("bound", ("low", "high"))
ARM = Label("arm", ("canary", "control"))
GATE = Label("gate", "metric gates of the spec, and the evaluation Job")
GATE_STATE = Label("state", ("Waiting", "Passing", "Failing", "NoData", "Unreadable", "Failed"))
CONDITION = Label("type", TYPES)
CONDITION_STATUS = Label("status", ("True", "False", "Unknown"))
ACCELERATOR = Label("accelerator", "resource names of accelerators in the spec")
MODEL = Label("model_name", "one for each service")
MODE = Label("mode", ("Active", "DryRun", "External"))
STRATEGY = Label("strategy", ("Canary", "BlueGreen", "Rolling", "Recreate"))
