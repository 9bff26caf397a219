"""What a shell offers after TAB: stacks, rules, models, instance types and engines, whatever state the project is in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import SpecError, ToolError

Completer = Callable[[str], list[str]]


def _beginning(known: Callable[[], Iterable[str]]) -> Completer:
    """The known words that begin with what is typed; none where they cannot be listed, since a shell has no place for an error."""

    def complete(incomplete: str) -> list[str]:
        try:
            return [word for word in known() if word.startswith(incomplete)]
        except (SpecError, ToolError, OSError):
            return []

    return complete


def _stacks() -> Iterable[str]:
    from ..spec.stack_file import find_project  # noqa: PLC0415 (slow)

    return find_project(Path.cwd()).stacks()


def _rules() -> Iterable[str]:
    from ..rules import rules  # noqa: PLC0415 (slow)
    from ..rules.form import FORM_CHECKS  # noqa: PLC0415 (slow)

    return sorted({*FORM_CHECKS, *(rule.id for rule in rules())})


def _models() -> Iterable[str]:
    from ..catalog import load_catalog  # noqa: PLC0415 (slow)

    return load_catalog().models


def _instances() -> Iterable[str]:
    from ..catalog import load_catalog  # noqa: PLC0415 (slow)

    return load_catalog().instances


def _engines() -> Iterable[str]:
    from ..catalog import load_catalog  # noqa: PLC0415 (slow)

    return load_catalog().engines


STACKS, RULES, MODELS, INSTANCES, ENGINES = (_beginning(known) for known in (_stacks, _rules, _models, _instances, _engines))
