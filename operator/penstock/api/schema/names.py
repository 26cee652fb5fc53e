"""Rules of names and URLs in the API."""

from penstock.api.schema.rules import Obeys, matches

MAX_MODEL_NAME_LENGTH = 128  # characters of the name that clients send
_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

SERVICE_NAME = Obeys(
    matches(_LABEL, "must be the name of an InferenceService of the same namespace")
)
BACKEND_NAME = Obeys(
    matches(_LABEL, "must be the name of an InferenceService or LoraAdapter of the same namespace")
)
# Name of a part of an object, such as a metric.
PART_NAME = Obeys(
    matches(
        _LABEL,
        "must have lower-case letters, digits and '-', and begin and end with a letter or digit",
    )
)
HTTP_URL = Obeys(
    matches(
        r"^https?://[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?(:[0-9]{1,5})?(/[-A-Za-z0-9._~/]*)?$",
        "must be http://HOST[:PORT][/PATH] or https://…, without a user or a query",
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
