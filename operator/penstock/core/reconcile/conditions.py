"""Computes the status conditions of a service, with reasons and messages."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.core.observed.children import ObservedState
from penstock.core.observed.preflight import on_variant, preflight_result, repetition_cause
from penstock.core.observed.quota import exceeds_quota
from penstock.core.observed.stored_status import (
    POD_FORBIDDEN,
    POD_TEMPLATE_REJECTED,
    QUOTA_EXCEEDED,
)
from penstock.core.reconcile.condition_types import ACCESS_CONTROLLED, Condition, Truth
from penstock.core.reconcile.engine_conditions import traffic_available, workload_ready
from penstock.core.reconcile.missing_objects import with_advice
from penstock.core.reconcile.name_conflict import name_conflict
from penstock.core.reconcile.plan import Plan
from penstock.core.reconcile.summary_conditions import (
    ready,
    reconciling,
    rolled_out,
    stalled,
)
from penstock.core.runtimes.devices import num_ranks
from penstock.core.scaling.report import ScalingReport
from penstock.core.spec.adapter_sources import written_sources
from penstock.core.spec.service import Object, ServiceSpec
from penstock.core.tenants.access_counts import AccessCounts


def explain_rejection(kind: str, message: str) -> tuple[str, str]:
    """(reason, message) for an object that the API server refused as invalid."""
    field = "spec.rollout.canary.evaluation" if kind == "Job" else "spec.template"
    text = f"the API server refused the pod template: {message}; see {field}"
    return POD_TEMPLATE_REJECTED, text


def explain_forbidden(spec: ServiceSpec, message: str) -> tuple[str, str]:
    """(reason, message) for a pod that the API server forbids (HTTP 403).

    By RBAC, pod security, a limit range or a quota.
    """
    text = f"the API server does not allow the pod: {message}"
    if exceeds_quota(message):
        return QUOTA_EXCEEDED, text
    uris = {"spec.model.uri": spec.model_uri} | written_sources(spec.settings)
    field = next((name for name, uri in uris.items() if uri.startswith("file://")), None)
    if field is not None and "hostPath" in message:
        text += (
            f"; the file:// folder of {field} needs a hostPath volume: where those are not allowed, set "
            f"{field} to a pvc:// URI"
        )
    elif spec.uses_node_cache and "hostPath" in message:
        text += (
            "; spec.model.cache.type Node needs a hostPath volume: where those are not allowed, name a claim "
            "in spec.model.cache.claimName instead"
        )
    return POD_FORBIDDEN, text


def conditions(
    spec: ServiceSpec,
    observed: ObservedState,
    plan: Plan,
    scaling: ScalingReport | None,
    gates: Sequence[Object] = (),
) -> tuple[Condition, ...]:
    """All conditions in the order of TYPES.

    ModelReady and WorkloadReady are about the revision that is rolled out, else the stable one. gates:
    metric gates of a canary, in the status's format.
    """
    coming = plan.rollout.revision or plan.rollout.stable or plan.revision
    valid = _spec_valid(spec, observed)
    model = model_ready(observed, coming)
    workload = workload_ready(spec, observed, coming, plan.total)
    traffic = traffic_available(spec, observed, plan.shares, plan.total)
    progress = _rolled_out(observed, plan, valid)
    stop = stalled((valid, model, workload, progress), observed, plan, coming)
    # The causes of a service that does not answer, unless another revision should.
    causes = (model, workload) if plan.rollout.stable in (None, coming) else ()
    return (
        valid,
        model,
        workload,
        traffic,
        progress,
        *_metrics_readable(spec, gates),
        *_scaling_active(spec, scaling),
        *_objectives_attainable(spec, scaling),
        reconciling(plan, progress, stop, (model, workload)),
        stop,
        ready(observed, valid, causes, traffic),
        *name_conflict(observed.name_conflict),
        *_access_controlled(observed.access, spec.namespace, spec.model_name),
    )


def _rolled_out(observed: ObservedState, plan: Plan, valid: Condition) -> Condition:
    """The condition RolledOut; False while the spec is not valid, as it receives no traffic then.

    valid: SpecValid. If the spec is refused, the message has the progress of the one that runs.
    """
    progress, refusal = rolled_out(plan), observed.refusal
    if refusal is None:
        is_valid = valid.status == "True"
        return progress if is_valid else replace(valid, type="RolledOut")
    text = f"{refusal.problem}, so the service goes on with the last one that was accepted"
    return Condition("RolledOut", "False", refusal.reason, f"{text}: {progress.message}")


def _spec_valid(spec: ServiceSpec, observed: ObservedState) -> Condition:
    refusal = observed.refusal
    if observed.name_taken_by is not None:
        # `service_claim` reads from this reason that the service yields the name, so it precedes a refusal.
        message = (
            f"the InferenceService {observed.name_taken_by} has the model name {spec.model_name!r} in this "
            "namespace already; set spec.model.name to another name"
        )
        message += f". Besides: {refusal.message}" if refusal else ""
        return Condition("SpecValid", "False", "ModelNameInUse", message)
    if refusal is not None:
        return Condition("SpecValid", "False", refusal.reason, refusal.message)
    if observed.violation:
        message = (
            f"{observed.violation}; the running revision keeps it, but no new revision may have it"
        )
        return Condition("SpecValid", "True", "AllowedBefore", message)
    return Condition("SpecValid", "True", "Valid", f"the spec can be served{_cpu_ranks(spec)}")


def _cpu_ranks(spec: ServiceSpec) -> str:
    """A remark on ranks that are processes on the CPU: often the accelerators were only forgotten."""
    on_cpu = {
        name: ranks
        for name, placed in spec.placed.items()
        if placed.resources.device == "cpu" and (ranks := num_ranks(placed)) > 1
    }
    if not on_cpu:
        return ""
    name, ranks = next(iter(on_cpu.items()))
    where = f"spec.variants[{name}].resources" if name else "spec.resources"
    return (
        f"; the {ranks} ranks of spec.engine.parallelism are processes on the CPU, as {where}.limits has "
        "no accelerators"
    )


def model_ready(observed: ObservedState, revision: str) -> Condition:
    """The condition ModelReady of a revision."""
    preflight = observed.preflight(revision)
    if preflight is None:
        if observed.deployment(revision) is not None:
            return Condition("ModelReady", "True", "Serving", "the revision has engines")
        if revision in observed.refusals:
            return Condition("ModelReady", "False", *observed.refusals[revision])
        return Condition(
            "ModelReady", "Unknown", "PreflightPending", "the model has not been checked yet"
        )
    verdict = preflight_result(preflight)
    if verdict is not None and verdict.ok:
        passed = map(preflight_result, observed.preflights(revision))
        message = "; ".join(each.message for each in passed if each is not None)
        return Condition("ModelReady", "True", verdict.reason, message)
    if verdict is not None:
        return Condition("ModelReady", "False", verdict.reason, verdict.message)
    if (cause := repetition_cause(preflight)) is not None:
        return Condition("ModelReady", "Unknown", *cause)
    if preflight.trouble is not None:
        reason, message = with_advice(preflight.trouble)
        return Condition("ModelReady", "False", reason, on_variant(preflight, message))
    message = "the model is being checked"
    if preflight.phase == "Pending":
        message = f"the pod {preflight.name} that checks the model has not started yet"
    return Condition("ModelReady", "Unknown", "PreflightRunning", message)


def _metrics_readable(spec: ServiceSpec, gates: Sequence[Object]) -> tuple[Condition, ...]:
    """The condition MetricsReadable; none for a service whose canaries have no metrics.

    A canary waits while its metrics cannot be read, so users need to see this.
    """
    if not spec.rollout.canary.metrics:
        return ()
    metrics = [gate for gate in gates if gate["kind"] == "Metric"]
    unread = [f"{m['name']}: {m['message']}" for m in metrics if m["state"] == "Unreadable"]
    if unread:
        return (Condition("MetricsReadable", "False", "MetricUnreadable", "; ".join(unread)),)
    if metrics:
        message = "the metrics of the canary can be read"
        return (Condition("MetricsReadable", "True", "Readable", message),)
    message = "metrics are read while a canary is judged"
    return (Condition("MetricsReadable", "Unknown", "NoCanary", message),)


def _scaling_active(spec: ServiceSpec, scaling: ScalingReport | None) -> tuple[Condition, ...]:
    """The condition ScalingActive; none in mode External, in which Penstock decides nothing."""

    def condition(status: Truth, reason: str, message: str) -> tuple[Condition, ...]:
        return (Condition("ScalingActive", status, reason, message),)

    if spec.scaling.mode == "External":
        return ()
    if scaling is None:
        return condition("Unknown", "NoDecision", "no decision has been made yet")
    if not scaling.valid:
        return condition("False", scaling.reason_code, scaling.reason)
    if spec.scaling.mode == "DryRun":
        return condition("True", "DryRun", "decisions are recorded, not applied")
    return condition("True", "Active", "decisions are based on the engines' metrics")


def _objectives_attainable(
    spec: ServiceSpec, scaling: ScalingReport | None
) -> tuple[Condition, ...]:
    """The condition ObjectivesAttainable; none without objectives or in mode External."""
    if spec.scaling.objectives is None or spec.scaling.mode == "External":
        return ()
    if scaling is None:
        found: tuple[Truth, str, str] = "Unknown", "NoDecision", "no decision has been made yet"
    elif scaling.unattainable is not None:
        found = "False", "ObjectivesUnattainable", scaling.unattainable
    else:
        found = "True", "Attainable", "no engine is known to miss the objectives while it is idle"
    return (Condition("ObjectivesAttainable", *found),)


def _access_controlled(
    counts: AccessCounts | None, namespace: str, model_name: str
) -> tuple[Condition, ...]:
    """The condition AccessControlled; none while the tenants are unknown, so that the last one stays."""
    if counts is None:
        return ()
    count = counts.count(namespace, model_name)
    if not count.has_tenants:
        message = (
            "the cluster has no Tenant: any client of the gateway may use the service, unless the gateway "
            "requires tenants"
        )
        return (Condition(ACCESS_CONTROLLED, "False", "NoTenants", message),)
    number = f"{count.allowed} tenant{'' if count.allowed == 1 else 's'}"
    message = f"{number} may use the model name {model_name!r}"
    return (Condition(ACCESS_CONTROLLED, "True", "Tenants", message),)
