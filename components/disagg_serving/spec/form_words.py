"""What is said about values of a wrong kind or size."""

WORDS = {
    "int_parsing": ("is not a whole number", "a whole number"),
    "int_type": ("is not a whole number", "a whole number"),
    "int_from_float": ("is not a whole number", "a whole number"),
    "float_parsing": ("is not a number", "a number"),
    "float_type": ("is not a number", "a number"),
    "bool_parsing": ("is neither true nor false", "true, false"),
    "bool_type": ("is neither true nor false", "true, false"),
    "string_type": ("is not a text", "a text"),
    "list_type": ("is not a list", "a list"),
    "dict_type": ("is not a mapping", "a mapping"),
    "model_type": ("is not a mapping", "a mapping of keys to values"),
    "model_attributes_type": ("is not a mapping", "a mapping of keys to values"),
}
"""What is wrong with a value by the type of pydantic's error, and what may stand there."""
BOUNDS = {
    "greater_than_equal": ("is too small", "at least {ge}"),
    "greater_than": ("is too small", "above {gt}"),
    "less_than_equal": ("is too large", "at most {le}"),
    "less_than": ("is too large", "below {lt}"),
    "too_short": ("has too few entries", "at least {min_length}"),
    "too_long": ("has too many entries", "at most {max_length}"),
    "string_too_short": ("is too short", "at least {min_length} character(s)"),
    "string_too_long": ("is too long", "at most {max_length} characters"),
    "string_pattern_mismatch": ("has a form that is not possible", "{words}"),
}
"""The same for limits, with the names of their parts in pydantic's errors."""
