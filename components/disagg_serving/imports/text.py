"""An import as text: the stack file with its comments, and the account of what did not come along."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from ..errors import visible
from ..spec.stack_file import ENVIRONMENT_KEY, NAMESPACE
from .found import Kind, Note
from .source import withhold
from .stack import Imported

_SHOWN_PLACES = 4
_WIDTH = 120
_ROLES = ("prefill", "decode", "server")
_BLOCKS = ("extraArgs", "extraEnv")


def stack_text(imported: Imported, sources: list[str], schema: str | None) -> str:
    """The stack file."""
    comments = imported.comments
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    lines.append(f"# imported from {visible(', '.join(sources))} by `disagg import`")
    for key, where in imported.secrets.items():
        lines.append(f"# set {NAMESPACE}:{key} with `pulumi config set --secret {NAMESPACE}:{key}`; it is asked for at {where}")
    lines += ["config:", f"  aws:region: {_flow(imported.region)}{_comment(comments.get('region'))}", f"  {ENVIRONMENT_KEY}:"]
    for key, value in imported.environment.items():
        if key != "models":
            lines.append(f"    {key}: {_flow(value)}{_comment(comments.get(key))}")
    lines.append("    models:")
    for i, model in enumerate(imported.environment["models"]):
        lines += _model(model, f"models[{i}]", comments)
    return "\n".join(lines) + "\n"


def _model(model: dict[str, Any], place: str, comments: dict[str, str]) -> Iterator[str]:
    first = True
    for key, value in sorted(model.items(), key=lambda pair: pair[0] in _BLOCKS):
        lead = "      - " if first else "        "
        first = False
        comment = _comment(comments.get(f"{place}.{key}"))
        if key in _ROLES and any(block in value for block in _BLOCKS):
            yield f"{lead}{key}:{comment}"
            for inner, one in value.items():
                yield from _entry("          ", inner, one)
        elif key in _BLOCKS:
            yield from _entry(lead, key, value)
        else:
            line = f"{lead}{key}: {_flow(value)}"
            if comment and len(line + comment) > _WIDTH and not lead.strip():
                yield f"{lead}{comment.strip()}"
                comment = ""
            yield line + comment


def _entry(lead: str, key: str, value: Any) -> Iterator[str]:
    if key not in _BLOCKS:
        yield f"{lead}{key}: {_flow(value)}"
        return
    yield f"{lead}{key}:"
    inner = " " * len(lead) + "  "
    if isinstance(value, dict):
        yield from (f"{inner}{_flow(name)}: {_flow(one)}" for name, one in value.items())
    else:
        yield from (f"{inner}- {_flow(one)}" for one in value)


def _comment(text: str | None) -> str:
    return f" # {text}" if text else ""


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True).removesuffix("\n...\n").strip()


def account(imported: Imported, secrets: frozenset[str]) -> str:
    """What was read, what did not come along and why, which secrets to create, and what the rules find."""
    lines = [f"read {one}" for one in imported.read]
    for kind in Kind:
        notes = [note for note in imported.found.notes if note.kind is kind]
        if notes:
            lines += ["", f"{kind}:", *_grouped(notes, brief=kind is Kind.REPLACED)]
    if imported.secrets:
        lines += ["", "secrets to create (their values are not repeated here):"]
        lines += [f"  pulumi config set --secret {NAMESPACE}:{key}   # asked for at {where}" for key, where in imported.secrets.items()]
    findings = [f"  {f.level} [{f.id}] {f.sentence()}" for f in imported.findings]
    lines += ["", "the rules find:", *(findings or ["  nothing"])]
    return "\n".join(visible(withhold(line, secrets)) for line in lines)


def _grouped(notes: list[Note], *, brief: bool) -> Iterator[str]:
    """Notes with one reason together: places, what stands there, and why."""
    by_reason: dict[str, list[Note]] = {}
    for note in notes:
        by_reason.setdefault(note.why if brief else f"{note.what}: {note.why}", []).append(note)
    for why, ours in sorted(by_reason.items(), key=lambda pair: min(_order(note) for note in pair[1])):
        names = [*dict.fromkeys(note.what for note in ours)]
        shown = ", ".join(names[:_SHOWN_PLACES]) + (", ..." if len(names) > _SHOWN_PLACES else "")
        yield f"  {_places(ours)}: {shown}: {why}" if brief else f"  {_places(ours)}: {why}"


def _order(note: Note) -> tuple[str, int]:
    file, _, line = note.where.rpartition(":")
    return (file, int(line)) if line.isdigit() else (note.where, 0)


def _places(notes: list[Note]) -> str:
    """Files with their lines: `a.yaml:3, 14`."""
    by_file: dict[str, list[int]] = {}
    for note in notes:
        file, line = _order(note)
        by_file.setdefault(file, []).extend([line] if line else [])
    shown = []
    for file, numbers in by_file.items():
        lines = sorted(set(numbers))
        more = ", ..." if len(lines) > _SHOWN_PLACES else ""
        shown.append(f"{file}:{', '.join(map(str, lines[:_SHOWN_PLACES]))}{more}" if lines else file)
    return "; ".join(shown)
