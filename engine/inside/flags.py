"""Runs in an engine's own environment: every flag of `vllm serve`, and the fields of --kv-transfer-config, as JSON."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

from ask import load


def kind(action: Any) -> str:
    """How a flag takes its value: switch (none), optional, value (more than one, or a form of its own), or the name of its type."""
    if action.nargs == 0 or type(action).__name__ == "EnableDisableAction":
        return "switch"
    if action.nargs is not None:
        return "optional" if action.nargs == "?" else "value"
    named = getattr(action.type, "__name__", "str") if action.type else "str"
    return named if named in {"int", "float", "str"} else "value"


def main() -> None:
    """Print them."""
    out, sys.stdout = sys.stdout, sys.stderr
    cli_args, _, parser_class = load()
    from vllm.config.kv_transfer import KVTransferConfig

    parser = cli_args.make_arg_parser(parser_class(prog="vllm serve"))
    flags = {}
    for action in parser._actions:
        for option in action.option_strings:
            choices = sorted(map(str, action.choices)) if action.choices is not None else None
            flags[option] = {"kind": kind(action), **({"choices": choices} if choices else {})}
    fields = sorted(f.name for f in dataclasses.fields(KVTransferConfig))
    json.dump({"flags": dict(sorted(flags.items())), "kvTransferConfig": fields}, out)


if __name__ == "__main__":
    main()
