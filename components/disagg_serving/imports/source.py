"""A file to import: its YAML documents as parts that know their line and whether somebody has read them, and the secrets in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from ..credentials import carries_secret, holds_secret
from ..errors import Finding, Level, SpecError, visible
from ..yaml_io import MAX_BYTES

MOST_PARTS, DEEPEST = 50_000, 60
"""Bounds of one file: a few aliases of aliases stand for more than any memory holds."""
HELM = re.compile(r"\{\{-?\s*(?:[.$]|/\*|(?:if|else|end|with|range|define|include|template|toYaml|tpl|default|printf|required|quote|int)\b)")
"""What begins an expression of a Go template; `{{ messages }}` of a chat template in Jinja does not."""
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_NULL = "tag:yaml.org,2002:null"
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_REFERENCES = ("name", "ref", "secrets", "key", "provider", "class")
_OTHER_SECRETS = {"kubeconfig", "authorization", "privatekey", "credential", "passphrase", "htpasswd", "dockerconfigjson"}
SHORTEST_SECRET = 6
"""Shorter texts are too common to be looked for in what is printed; they are left out where they stand all the same."""
WITHHELD = "<secret>"


def refuse(where: str, message: str, *, allowed: str = "", fix: str = "") -> SpecError:
    """A refusal of what is imported, by place and name."""
    return SpecError([Finding("import", Level.ERROR, where, message, None, allowed, fix)])


@dataclass(eq=False)
class Part:
    """A value of a file: a text, a list or a mapping, and null as None. Whoever uses it says so, so that the rest can be listed."""

    file: str
    line: int
    path: tuple[str, ...]
    value: str | list[Part] | dict[str, Part] | None
    seen: bool = False

    @property
    def shown(self) -> str:
        """The end of its path, which a reader finds at the line."""
        listed = self.path[-2:-1] and self.path[-2].startswith("[")
        return "".join(key if key.startswith("[") else f".{key}" for key in self.path[-3 if listed else -2 :]).lstrip(".")

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    def at(self, *keys: str) -> Part | None:
        """What is below these keys, None where it is absent or null. What is on the way counts as used, and so does a text."""
        here: Part | None = self
        for key in keys:
            if here is None or not isinstance(here.value, dict):
                return None
            here.seen = True
            here = here.value.get(key)
        if here is None or here.value is None:
            return None
        if isinstance(here.value, str):
            here.seen = True
        return here

    def text(self, *keys: str) -> str:
        """The text below these keys, as it is written; empty where there is none."""
        found = self.at(*keys)
        return found.value.strip() if found is not None and isinstance(found.value, str) else ""

    def number(self, *keys: str) -> int | None:
        """The whole number below these keys; None where there is none, and what is no number stays unread."""
        found = self.at(*keys)
        if found is None or not isinstance(found.value, str):
            return None
        if re.fullmatch(r"\d{1,9}", found.value.strip()):
            return int(found.value)
        found.seen = False
        return None

    def yes(self, *keys: str) -> bool:
        """Whether a text below these keys is true."""
        return self.text(*keys).lower() in {"true", "yes", "on"}

    def each(self, *keys: str) -> list[Part]:
        """The entries of the list below these keys."""
        found = self.at(*keys)
        if found is None or not isinstance(found.value, list):
            return []
        found.seen = True
        return found.value

    def pairs(self, *keys: str) -> dict[str, Part]:
        """The entries of the mapping below these keys."""
        found = self.at(*keys)
        if found is None or not isinstance(found.value, dict):
            return {}
        found.seen = True
        return found.value

    def use(self) -> Part:
        """Count all of it as used."""
        for one in self.walk():
            one.seen = True
        return self

    def walk(self) -> Iterator[Part]:
        """It and everything in it."""
        yield self
        inner = self.value if isinstance(self.value, list) else [*self.value.values()] if isinstance(self.value, dict) else []
        for one in inner:
            yield from one.walk()

    def unread(self) -> Iterator[Part]:
        """The uppermost parts that nobody used."""
        if not self.seen:
            yield self
            return
        inner = self.value if isinstance(self.value, list) else [*self.value.values()] if isinstance(self.value, dict) else []
        for one in inner:
            yield from one.unread()


def read_documents(text: str, file: str) -> list[Part]:
    """The documents of a YAML file that are not empty.

    Raises SpecError, without a word of the file, for what is not YAML, for a template, a key that stands twice, and a file too large.
    """
    if len(text) > MAX_BYTES:
        raise refuse(file, f"is larger than {MAX_BYTES} bytes", allowed="a smaller file")
    template = next((n for n, line in enumerate(text.splitlines(), 1) if HELM.search(line) and not line.lstrip().startswith("#")), None)
    if template:
        fix = "render it first, with `helm template`, and import what comes out"
        raise refuse(f"{file}:{template}", "is a Helm or Go template", allowed="plain YAML", fix=fix)
    try:
        roots = [*yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
        count = [0]
        return [part for part in (_part(root, file, (), count, 0) for root in roots if root is not None) if part.value is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        mark = getattr(problem, "problem_mark", None)
        # what the parser quotes may be a secret
        what = _QUOTED.sub("...", " ".join(str(getattr(problem, "problem", None) or "it cannot be read").split()))
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        raise refuse(place, f"is not valid YAML: {visible(what)}", fix="correct the line") from None


def _part(node: Any, file: str, path: tuple[str, ...], count: list[int], depth: int) -> Part:
    count[0] += 1
    here = f"{file}:{node.start_mark.line + 1}"
    if count[0] > MOST_PARTS or depth > DEEPEST:
        raise refuse(here, "holds itself, or stands for too many values", allowed=f"at most {MOST_PARTS} values in {DEEPEST} levels")
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return Part(file, line, path, [_part(one, file, (*path, f"[{i}]"), count, depth + 1) for i, one in enumerate(node.value)])
    if isinstance(node, yaml.MappingNode):
        return Part(file, line, path, _mapping(node, file, path, count, depth))
    return Part(file, line, path, None if node.tag == _NULL else str(node.value))


def _mapping(node: Any, file: str, path: tuple[str, ...], count: list[int], depth: int) -> dict[str, Part]:
    own: dict[str, Part] = {}
    merged: dict[str, Part] = {}
    for key, value in node.value:
        where = f"{file}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode):
            raise refuse(where, "is a key that is not a text", allowed="plain YAML")
        if key.value == "<<":
            for one in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(one, yaml.MappingNode):
                    merged = _mapping(one, file, path, count, depth + 1) | merged
            continue
        shown = WITHHELD if holds_secret(key.value) else key.value
        if key.value in own:
            raise refuse(where, f"has the key {visible(shown)} twice")
        own[key.value] = _part(value, file, (*path, shown), count, depth + 1)
        own[key.value].line = key.start_mark.line + 1 if not isinstance(value, yaml.ScalarNode) else own[key.value].line
    return {**merged, **own}


def names_secret(key: str) -> bool:
    """Whether what stands behind a key is a secret; a key that names one, like `secretName`, does not count."""
    words = [word.lower() for word in _WORD.findall(key)]
    if not words or (len(words) > 1 and words[-1] in _REFERENCES and words[-2:] not in (["api", "key"], ["access", "key"], ["private", "key"])):
        return False
    if words[:2] == ["env", "from"] or key in {"imagePullSecrets", "tokenKey"}:
        return False
    return carries_secret("_".join(words), "") or bool(_OTHER_SECRETS & {*words, "".join(words)})


def secrets_in(part: Part, *, below: bool = False) -> Iterator[str]:
    """Every text of a document that may be a secret: by its key, by the name of the variable that it is for, or by its form."""
    if isinstance(part.value, str):
        if below or holds_secret(part.value):
            yield part.value
    elif isinstance(part.value, list):
        for one in part.value:
            yield from secrets_in(one, below=below)
    elif isinstance(part.value, dict):
        entry = part.value.get("name")
        named = entry is not None and isinstance(entry.value, str) and names_secret(entry.value) and "value" in part.value
        secret_object = (kind := part.value.get("kind")) is not None and kind.value == "Secret"
        for key, one in part.value.items():
            inside = names_secret(key) or (named and key == "value") or (secret_object and key in {"data", "stringData"})
            # a reference to a secret is a mapping of names: {secretName: ..., secretKey: ...}
            reference = isinstance(one.value, dict) and any(k in one.value for k in ("secretName", "secretKeyRef", "secretRef", "valueFrom"))
            yield from secrets_in(one, below=(below or inside) and not reference)


def withhold(text: str, secrets: frozenset[str]) -> str:
    """A text without the secrets of the files."""
    for secret in secrets:
        text = text.replace(secret, WITHHELD)
    return WITHHELD if holds_secret(text) else text
