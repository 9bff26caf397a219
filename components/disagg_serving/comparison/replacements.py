"""Which inputs make a provider replace a resource: the dated table of replacements.yaml."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from ..yaml_io import read_yaml

TABLE = Path(__file__).with_name("replacements.yaml")


@cache
def _table() -> dict[str, Any]:
    data: dict[str, Any] = read_yaml(TABLE)
    return data


def checked_on() -> str:
    """The day on which the table was compared with its sources."""
    return str(_table()["checked"])


def is_known(type_token: str) -> bool:
    """Whether the table says anything about a type; custom resources of Kubernetes are known by what holds for all objects."""
    return type_token.startswith("kubernetes:") or type_token in _package(type_token).get("types", {})


def forces_replacement(type_token: str, path: str) -> bool:
    """Whether a change at `path` of the inputs makes the provider replace a resource of this type."""
    package = _package(type_token)
    return any(covers(p, path) for p in (*package.get("every", ()), *package.get("types", {}).get(type_token, ())))


def is_refused(type_token: str, path: str) -> bool:
    """Whether the API server refuses a change at `path` of an object that exists."""
    return any(covers(p, path) for p in _table()["refused"]["types"].get(type_token, ()))


def _package(type_token: str) -> dict[str, Any]:
    package: dict[str, Any] = _table().get(type_token.split(":", 1)[0], {})
    return package


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    text = re.escape(pattern).replace(r"\[\*\]", r"\[[^\]]*\]").replace(r"\*", r"[^.\[]*")
    return re.compile(text + r"(?=$|[.\[])")


def covers(pattern: str, path: str) -> bool:
    """Whether a property path (`spec.template`, `webhooks[*].caBundle`, `*`) names `path` or something above it."""
    return _pattern(pattern).match(path) is not None
