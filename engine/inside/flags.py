"""Runs in an engine's own environment: every flag of `vllm serve` with the values that it takes, as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ask import known_parsers, load

SAMPLES = ("7", "1.5", "A-b", "{}")
"""What each flag's own converter is tried with: converters are often wrapped, so their names tell little."""
KINDS = {
    (True, False, False, False): "int",
    (True, True, False, False): "float",
    (True, True, False, True): "json",
    (False, False, False, True): "object",
    (True, True, True, True): "text",
}
"""Which of a whole number, a fraction, a word and an empty JSON object a converter takes."""


def takes(convert: Any, text: str) -> bool:
    """Whether a converter takes a text."""
    try:
        convert(text)
    except Exception:  # noqa: BLE001 (each converter has errors of its own)
        return False
    return True


def about(action: Any) -> dict[str, Any]:
    """How a flag takes its value: {kind, choices, none}, as disagg_serving.catalog.flags describes them."""
    if action.nargs == 0:
        return {"kind": "switch"}
    if isinstance(action, argparse._AppendAction):
        return {"kind": "several"}
    several = action.nargs == "+"
    if action.nargs is not None and not several:
        return {"kind": "optional"}
    if type(action) is not argparse._StoreAction:
        return {"kind": "list" if several else "value"}
    convert = action.type or str
    kind = KINDS.get(tuple(takes(convert, text) for text in SAMPLES), "value")
    if kind == "int" and takes(convert, "1k"):
        kind = "value" if takes(convert, "auto") else "size"
    if several:
        kind = "ints" if kind == "int" else "list"
    if kind == "text" and convert("A-b") != "A-b":
        kind = "word"
    # some list what their own converter turns into something else
    listed = sorted(str(c) for c in action.choices or () if c is not None and takes(convert, str(c)) and convert(str(c)) == c)
    choices = {"choices": listed} if action.choices is not None and kind != "value" else {}
    none = takes(convert, "None") and not convert("None") and (action.choices is None or None in action.choices)
    return {"kind": kind, **choices, **({"none": True} if none else {})}


def named_elsewhere() -> dict[str, tuple[str, set[str]]]:
    """Values that the parser takes whatever they are, and vLLM itself only from a list: when it configures or starts itself."""
    from vllm.config.vllm import OptimizationLevel
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS
    from vllm.transformers_utils.config import _CONFIG_FORMAT_TO_CONFIG_PARSER
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    return {
        **{f"--{field.replace('_', '-')}": ("text", names) for field, names in known_parsers().items()},
        "--attention-backend": ("word", {"auto", *(backend.lower() for backend in AttentionBackendEnum.__members__)}),
        "--config-format": ("text", {"auto", *_CONFIG_FORMAT_TO_CONFIG_PARSER}),
        "--optimization-level": ("int", {str(level.value) for level in OptimizationLevel}),
        "--quantization": ("text", set(QUANTIZATION_METHODS)),
    }


def spelling(option: str, action: Any) -> dict[str, Any]:
    """Of another spelling of an option: the one that names it, and whether it says the opposite; of that one the value without it."""
    name = next(o for o in action.option_strings if o.startswith("--"))
    if option == name:
        plain = isinstance(action.default, str | int | float) and action.default != argparse.SUPPRESS and getattr(action, "const", None) is None
        return {"default": str(action.default)} if plain and action.nargs != 0 else {}
    return {"of": name, **({"off": True} if option in getattr(action, "negative_option_strings", negations(action)) else {})}


def negations(action: Any) -> set[str]:
    """The spellings that turn a switch off, for parsers that keep no list of them."""
    return {o for o in action.option_strings if isinstance(action, argparse.BooleanOptionalAction) and o.startswith("--no-")}


def main() -> None:
    """Print flags by their long spellings, and the long one of each short spelling."""
    out, sys.stdout = sys.stdout, sys.stderr
    cli_args, _, parser_class = load()
    parser = cli_args.make_arg_parser(parser_class(prog="vllm serve"))
    # an action lists only the spellings that help shows; an engine that shows its help does not serve
    known = {option: action for option, action in parser._option_string_actions.items() if not isinstance(action, argparse._HelpAction)}
    flags = {option: {**about(action), **spelling(option, action)} for option, action in known.items() if option.startswith("--")}
    for flag, (kind, names) in named_elsewhere().items():
        flags[flag] = {**flags[flag], "kind": kind, "choices": sorted(names)}
    short = {option: spelling(option, action)["of"] for option, action in known.items() if not option.startswith("--")}
    json.dump({"flags": dict(sorted(flags.items())), "short": dict(sorted(short.items()))}, out)


if __name__ == "__main__":
    main()
