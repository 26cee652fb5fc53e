"""Rules of names in the API: of models for clients, and of services that other objects refer to."""

from penstock.api.schema.rules import Obeys, matches

SERVICE_NAME = Obeys(
    matches(
        r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        "must be the name of an InferenceService of the same namespace",
    )
)


def model_name_at(path: str) -> Obeys:
    """Rule of the name that clients send as `model`. path: of the field in the spec, for the message."""
    return Obeys(
        matches(
            r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
            f"{path} may have letters, digits, '.', '_' and '-', and must begin and end with a letter "
            "or digit",
        )
    )
