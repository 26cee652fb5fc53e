"""References to other objects of the same namespace."""

from typing import Annotated

from pydantic import Field

from penstock.api.schema.rules import Model, Obeys, matches

ObjectName = Annotated[
    str,
    Obeys(
        matches(
            r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
            "must be the name of an object: lower-case letters, digits, - and .",
        )
    ),
]


class SecretRef(Model):
    """Secret in the same namespace."""

    name: ObjectName = Field(
        description="Name of the Secret, such as hub-token.", min_length=1, max_length=253
    )
