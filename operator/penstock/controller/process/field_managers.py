"""Field managers of the operator's writes: an apply removes only fields that its own manager has set."""

OPERATOR_MANAGER = "penstock-operator"  # objects of plans, and statuses; also the source of Events
SCALER_MANAGER = "penstock-scaler"  # replicas, and what scaling has learned
JUDGE_MANAGER = "penstock-judge"  # evidence on canaries
ADAPTERS_MANAGER = "penstock-adapters"  # InferenceServices that are dedicated pools
# The state annotation. If OPERATOR_MANAGER owned it, its next apply of the ControllerRevision
# would remove it.
STATE_MANAGER = "penstock-state"
