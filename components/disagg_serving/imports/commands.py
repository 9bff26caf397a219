"""Command lines: a file of them, a shell script, or standard input."""

from __future__ import annotations

import re

from ..credentials import holds_secret
from .found import Engine, Found, Variable
from .pods import role_in
from .shell import engine_commands, statements
from .source import names_secret, refuse

_YAML = re.compile(r"""(---|%YAML|- |[{\[]|["']?[\w./ -]+["']?\s*:(\s|$))""")
_SERVES = re.compile(r"\bvllm\s+serve\b|vllm\.entrypoints|dynamo\.vllm|\bvllm/vllm-openai\b|/vllm[\w-]*:")


def is_command(text: str) -> bool:
    """Whether a text is a command line or a script rather than YAML: by its first line that says something."""
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    return text.startswith("#!") or (not _YAML.match(first.lstrip()) and _SERVES.search(text) is not None)


def read_commands(text: str, file: str, found: Found) -> None:
    """Put each command that starts an engine into what was found."""
    before = len(found.engines)
    for statement in statements(text, 1, {}):
        for command in engine_commands(statement):
            line = statement.words[0].line
            engine = Engine("", "a command line", file, line, words=list(command.words), image=command.image, dynamo=command.dynamo)
            engine.takes((name, Variable(word.text, f"{file}:{word.line}", "", word.lacks)) for name, word in command.variables.items())
            for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
                devices = engine.variables.pop(name, None)
                engine.gpus = len(devices.text.split(",")) if devices is not None else engine.gpus
            engine.gpus = int(command.gpus) if command.gpus.isdigit() else engine.gpus
            if command.dynamo:
                engine.role = role_in(*(word.text for word in command.words))
            engine.name = f"line {line}"
            found.engines.append(engine)
    if len(found.engines) == before:
        raise refuse(file, "starts no vLLM", allowed="`vllm serve MODEL ...`, alone or in a script")


def secrets_of(text: str) -> set[str]:
    """Texts of a script that may be secrets: what is assigned to a name, or follows a flag, that tells of one."""
    found: set[str] = set()
    for statement in statements(text, 1, {}):
        words = [*statement.words]
        found |= {word.text for name, word in statement.variables.items() if names_secret(name) or holds_secret(word.text)}
        for i, word in enumerate(words):
            name, equals, value = word.text.partition("=")
            if names_secret(name.lstrip("-")):
                found |= {value} if equals else {words[i + 1].text} if name.startswith("-") and i + 1 < len(words) else set()
            elif holds_secret(word.text):
                found.add(word.text)
    return found
