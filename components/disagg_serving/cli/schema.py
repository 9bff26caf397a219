"""`disagg schema`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..errors import ToolError
from ..schemas import KINDS, json_schema
from .common import emit


def schema(kind: Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.")] = "stack") -> int:
    """Print a JSON Schema of stack files, catalogue entries or outputs."""
    if kind not in KINDS:
        raise ToolError(f"no schema {kind} (known: {', '.join(KINDS)})")
    emit(json.dumps(json_schema(kind), indent=2, ensure_ascii=False), None)
    return 0
