"""Keys and values of labels and annotations, as Kubernetes accepts them."""

from typing import Annotated

from pydantic import Field

from penstock.api.schema.rules import Obeys, Rule, matches

_DNS_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_LABEL_NAME = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
KEY_PATTERN = rf"^({_DNS_LABEL}([.]{_DNS_LABEL})*/)?{_LABEL_NAME}$"
VALUE_PATTERN = rf"^({_LABEL_NAME})?$"
LABEL_KEY = matches(KEY_PATTERN, "must be the key of a label, such as cloud.example/zone")
LABEL_KEYS = Obeys(
    Rule(
        f"self.all(key, key.matches('{KEY_PATTERN}'))",
        lambda labels: all(LABEL_KEY.holds(key) for key in labels),
        "must have keys of labels, such as cloud.example/zone",
    )
)
ANNOTATION_KEYS = Obeys(
    Rule(
        f"self.all(key, key.lowerAscii().matches('{KEY_PATTERN}'))",
        lambda annotations: all(LABEL_KEY.holds(key.lower()) for key in annotations),
        "must have keys of annotations, such as example.com/owner",
    )
)
LabelValue = Annotated[
    str,
    Field(max_length=63),
    Obeys(
        matches(
            VALUE_PATTERN,
            "must be the value of a label: letters, digits, '-', '_' and '.', with a letter or digit at "
            "both ends",
        )
    ),
]
