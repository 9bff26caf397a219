"""What all parts of a stack file share: frozen models, camelCase keys, unknown keys refused.

Modules of models do not postpone annotations: pydantic would compile the text of each anew at every start.
"""

from collections.abc import Callable
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core.core_schema import CoreSchema, no_info_before_validator_function

from ..phrases import either, say

IN_QUOTES = "write it in quotes, as it is meant"


class RefusalError(ValueError):
    """A value that a field validator does not take, with what it would take, and the value that it likely stands for.

    `otherwise` is what to do where that value is not taken either.
    """

    def __init__(self, message: str, *, allowed: str = "", right: object = None, otherwise: str = "") -> None:
        super().__init__(message)
        self.message, self.allowed, self.right, self.otherwise = message, allowed, right, otherwise


class KnownLater:
    """Marks a field into which no check looks: a program may give it the output of another resource."""


class Spec(BaseModel):
    """Base of everything a person writes: immutable, camelCase in YAML, snake_case in Python."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        validate_default=False,
        hide_input_in_errors=True,
        defer_build=True,
    )


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, also one of many or none; None for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := model_in(arg))), None)


class Before:
    """A function that looks at a value first, like pydantic's BeforeValidator, which reads the function's signature anew for every field."""

    def __init__(self, look: Callable[[Any], Any]) -> None:
        self.look = look

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema of the type itself, after the function."""
        return no_info_before_validator_function(self.look, handler(source))


def number(value: Any) -> Any:
    """Refuse true and false where a number is wanted."""
    # pydantic takes true for 1; in a stack file that is a mistake
    if isinstance(value, bool):
        raise RefusalError("is not a number", allowed="a number")
    return value


def _text(value: Any) -> Any:
    # YAML reads 1.30 as 1.3, so an unquoted version cannot be repaired here
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise RefusalError(say("is a number{}", either(" in YAML", "")), allowed="a text", right=str(value), otherwise=IN_QUOTES)
    return value


LARGEST = 1_000_000_000
AtLeastOne = Annotated[int, Before(number), Field(ge=1)]
"""A whole number of at least 1, to be combined with a bound."""

Count = Annotated[AtLeastOne, Field(le=LARGEST)]
"""A whole number of at least 1."""

Fraction = Annotated[float, Before(number), Field(gt=0, lt=1, allow_inf_nan=False)]
"""A number between 0 and 1, both excluded."""

Positive = Annotated[float, Before(number), Field(gt=0, le=LARGEST, allow_inf_nan=False)]
"""A number above 0."""

Text = Annotated[str, Before(_text), Field(min_length=1, max_length=4096)]
"""A text that is not empty."""

Reason = Annotated[str, Before(_text), Field(min_length=10, max_length=4096)]
"""A text that says why."""

FORMS: dict[str, str] = {}
"""What a regular expression asks for, in words: what a person reads instead of the expression."""


def form(pattern: str, words: str) -> Any:
    """A field constraint by regular expression that is explained in words."""
    FORMS[pattern] = words
    return Field(pattern=pattern)


DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
Name = Annotated[str, Before(_text), form(DNS_LABEL, "small letters, digits and dashes, a letter first"), Field(max_length=63)]
"""A DNS label: small letters, digits and dashes, at most 63."""

PathText = Annotated[Text, form(r"^[^{}\x00-\x1f]+$", "a path in one line"), Field(max_length=1024)]
"""The path of a file, not what stands in it."""

Tags = dict[Annotated[str, Field(min_length=1, max_length=128)], Annotated[str, Before(_text), Field(max_length=256)]]
"""AWS tags, key to value."""
