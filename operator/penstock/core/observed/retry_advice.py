"""How a user has a model or an adapter tried again whose cause of failure is not in the spec.

A refused revision, and a version of an adapter that its source refused, wait for a person. The operator
cannot see a repository, a claim or the content of a Secret change.
"""

# Refusals of files that a user can correct at their place.
FILE_REASONS = (
    "ModelNotFound", "NotAModel", "BadConfig", "BadWeights", "WeightsMismatch", "NoSafetensors",
    "NoTokenizer", "BadTokenizer", "ReadFailed",
)  # fmt: skip


# A container that fails is started again by the kubelet, whose back-off ends at five minutes.
POD_RETRY = "the pod tries it again by itself, after pauses of at most five minutes"


def restart_command(service: str) -> str:
    """The command that has the model of a service tried again, whether or not a revision serves."""
    return f"kubectl penstock rollout restart {service}"


def source_advice(command: str) -> str:
    """What to do about a source that refuses. command: has it tried again without a change of the spec."""
    return (
        "change the URI, or correct the source or the Secret of spec.model.secretRef and run: "
        f"{command}"
    )


def files_advice(reason: str, command: str) -> str:
    """What to do about the files of a model in a volume; empty if only the spec can be changed."""
    return f"or correct the files and run: {command}" if reason in FILE_REASONS else ""
