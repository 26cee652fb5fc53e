"""Advice to users on how to retry a model or an adapter after they have corrected something outside the spec.

A refused revision, and a version of an adapter that its source refused, wait for a user: the operator does
not see changes of a repository, of a claim's files or of a Secret.
"""

# Reasons of refusals that a user can correct in the files of the model.
FILE_REASONS = (
    "ModelNotFound", "NotAModel", "BadConfig", "BadWeights", "WeightsMismatch", "NoSafetensors",
    "NoTokenizer", "BadTokenizer", "ReadFailed",
)  # fmt: skip
# A container that fails is started again by the kubelet, whose back-off ends at five minutes.
POD_RETRY = "the pod tries it again by itself, after pauses of at most five minutes"


def restart_command(service: str) -> str:
    """The command that retries the model of a service, whether or not a revision serves."""
    return f"kubectl penstock rollout restart {service}"


def source_advice(command: str) -> str:
    """Advice for a source that refuses. command: retries without a change of the spec."""
    return (
        "change the URI, or correct the source or the Secret of spec.model.secretRef and run: "
        f"{command}"
    )


def files_advice(reason: str, command: str) -> str:
    """Advice for the files of a model in a volume; empty if only a change of the spec helps."""
    return f"or correct the files and run: {command}" if reason in FILE_REASONS else ""
