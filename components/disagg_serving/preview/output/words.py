"""Words and colours that the terminal's outputs share."""

from __future__ import annotations

from ...errors import Level

STYLES = {Level.ERROR: "bold red", Level.WARNING: "yellow", Level.INFO: "cyan"}


def short_type(type_token: str) -> str:
    """A type token as a person says it: `Service`, `aws Vpc`."""
    package, *_, name = type_token.split(":")
    return f"{'' if package in ('disagg-serving', 'kubernetes') else package + ' '}{name}"
