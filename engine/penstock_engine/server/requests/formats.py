"""Schemas of `response_format` and `structured_outputs`, and their grammars."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from penstock_engine.parsers.json_scan import read_json
from penstock_engine.structured import grammar
from penstock_engine.structured.grammar import Grammar, GrammarError
from penstock_engine.structured.schema import close_objects


class Strict(BaseModel):
    """Base of models with strict types and no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class JsonSchema(Strict):
    name: str = Field(max_length=256)
    description: str | None = None
    json_schema: Any = Field(alias="schema", default={"type": "object"})
    strict: bool | None = None  # without effect: the schema is always enforced


class ResponseFormat(Strict):
    """OpenAI's response_format.

    object_schema: schema of a json_object, which llama.cpp and others let clients put here.
    """

    type: str
    json_schema: JsonSchema | None = None
    object_schema: dict[str, Any] | None = Field(alias="schema", default=None)

    @model_validator(mode="after")
    def _check_type(self) -> "ResponseFormat":
        if self.type not in ("text", "json_object", "json_schema"):
            kind = self.type[:64]
            raise ValueError(
                f"type {kind} is not supported by this engine: use text, json_object or json_schema"
            )
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError(
                "json_schema is required with type json_schema, and only allowed there"
            )
        if self.type != "json_object" and self.object_schema is not None:
            raise ValueError("schema is only allowed with type json_object")
        return self

    def grammar(self) -> Grammar | None:
        """Returns the grammar; None for free text. Raises GrammarError if the schema is invalid."""
        if self.json_schema is not None:
            return grammar.json_schema_grammar(self.json_schema.json_schema)
        if self.type == "json_object":
            return grammar.json_schema_grammar({"type": "object"} | (self.object_schema or {}))
        return None


class StructuredOutputs(Strict):
    """vLLM's structured_outputs. Exactly one field must be set that constrains the text.

    whitespace_pattern, disable_any_whitespace: white space between the tokens of JSON.
    disable_additional_properties: whether objects have no other properties than those listed.
    """

    json_schema: Any = Field(alias="json", default=None)
    regex: str | None = None
    choice: list[str] | None = None
    grammar_text: str | None = Field(alias="grammar", default=None)
    json_object: bool | None = None
    structural_tag: Any = None
    whitespace_pattern: str | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False

    @model_validator(mode="after")
    def _check_one(self) -> "StructuredOutputs":
        if self.structural_tag is not None:
            raise ValueError("structural_tag is not supported by this engine")
        constraints = (
            self.json_schema, self.regex, self.choice, self.grammar_text, self.json_object
        )  # fmt: skip
        num_given = sum(constraint is not None for constraint in constraints)
        if num_given != 1 or self.json_object is False:
            raise ValueError("must have exactly one of json, regex, choice, grammar, json_object")
        return self

    def grammar(self) -> Grammar:
        """Returns the grammar. Raises GrammarError if it is invalid."""
        if self.regex is not None:
            return grammar.regex_grammar(self.regex)
        if self.choice is not None:
            return grammar.choice_grammar(self.choice)
        if self.grammar_text is not None:
            return grammar.ebnf_grammar(self.grammar_text)
        schema = {"type": "object"} if self.json_object else self._schema()
        if self.disable_additional_properties and isinstance(schema, dict):
            schema = close_objects(schema)
        white_space = "" if self.disable_any_whitespace else self.whitespace_pattern
        return grammar.json_schema_grammar(schema, white_space)

    def _schema(self) -> Any:
        """Returns the JSON schema, which may be given as text, as in vLLM."""
        if not isinstance(self.json_schema, str):
            return self.json_schema
        try:
            return read_json(self.json_schema)
        except (ValueError, RecursionError) as error:
            raise GrammarError("json is not the text of a JSON schema") from error
