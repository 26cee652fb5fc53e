"""Schemas of `response_format` and `structured_outputs`, and their grammars."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from penstock_engine.parsers.json_scan import read_json
from penstock_engine.structured import grammar
from penstock_engine.structured.grammar import Grammar, GrammarError


class Strict(BaseModel):
    """Base of models with strict types and no unknown fields."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TextFormat(Strict):
    type: Literal["text"]

    def grammar(self) -> None:
        return None


class JsonObjectFormat(Strict):
    type: Literal["json_object"]

    def grammar(self) -> Grammar:
        return grammar.json_schema_grammar({"type": "object"})


class JsonSchema(Strict):
    name: str = Field(max_length=256)
    description: str | None = None
    json_schema: Any = Field(alias="schema", default={"type": "object"})
    strict: bool | None = None  # without effect: the schema is always enforced


class JsonSchemaFormat(Strict):
    type: Literal["json_schema"]
    json_schema: JsonSchema

    def grammar(self) -> Grammar:
        return grammar.json_schema_grammar(self.json_schema.json_schema)


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


class StructuredOutputs(Strict):
    """vLLM's structured_outputs. Exactly one field must be set."""

    json_schema: Any = Field(alias="json", default=None)
    regex: str | None = None
    choice: list[str] | None = None
    grammar_text: str | None = Field(alias="grammar", default=None)
    json_object: bool | None = None

    @model_validator(mode="after")
    def _check_one(self) -> "StructuredOutputs":
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1 or self.json_object is False:
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
        if self.json_object:
            return grammar.json_schema_grammar({"type": "object"})
        return grammar.json_schema_grammar(self._schema())

    def _schema(self) -> Any:
        """Returns the JSON schema, which may be given as text, as in vLLM."""
        if not isinstance(self.json_schema, str):
            return self.json_schema
        try:
            return read_json(self.json_schema)
        except (ValueError, RecursionError) as error:
            raise GrammarError("json is not the text of a JSON schema") from error
