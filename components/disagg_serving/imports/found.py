"""What every form is read into: engines with their command lines, and notes about what does not come along."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from .shell import Word

Role = Literal["prefill", "decode", "server", ""]
"""The role that a form states; empty where only the command line may tell."""


class Kind(StrEnum):
    """What becomes of something in the file."""

    FAULT = "keeps it from working, or slows it, as it is written"
    UNSAID = "could not be said"
    REPLACED = "not taken, because disagg-serving generates it"


@dataclass(frozen=True)
class Note:
    """Something that the stack file does not say as the file did. `what` is a key, flag or variable, never its value."""

    kind: Kind
    where: str
    what: str
    why: str


@dataclass
class Variable:
    """An environment variable: its text, or where its value comes from instead."""

    text: str
    where: str
    source: Literal["", "secret", "other"] = ""
    lacks: tuple[str, ...] = ()


@dataclass
class Engine:
    """The engines of one role: a command line, how often it runs, and on what."""

    name: str
    form: str
    file: str
    line: int
    role: Role = ""
    words: list[Word] = field(default_factory=list)
    variables: dict[str, Variable] = field(default_factory=dict)
    model: str = ""
    weights: str = ""
    image: str = ""
    replicas: int = 1
    nodes: int = 1
    sized: bool = True
    """Whether the number of nodes is known; it may be a variable that is put in later."""
    gpus: int | None = None
    selectors: dict[str, list[str]] = field(default_factory=dict)
    namespace: str = ""
    dynamo: bool = False
    hf_token: str = ""
    api_key: str = ""
    sure: bool = True
    """Whether the form itself says that this is an engine; else its command line has to."""

    @property
    def where(self) -> str:
        """File and line."""
        return f"{self.file}:{self.line}"

    def flag(self, name: str, value: object, line: int | None = None) -> None:
        """Add a flag that the form has a key for; the command line's own comes later and counts."""
        if value is not None and value != "":
            text = name if value is True else f"{name}={value}"
            self.words.append(Word(text, line or self.line))

    def takes(self, variables: Iterable[tuple[str, Variable]]) -> None:
        """Add variables; tokens and keys among them become names of secrets."""
        for name, variable in variables:
            if name in HF_TOKENS:
                self.hf_token = self.hf_token or variable.where
            elif name in API_KEYS:
                self.api_key = self.api_key or variable.where
            else:
                self.variables[name] = variable


HF_TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "HF_API_TOKEN"})
"""Variables that hold a token of Hugging Face."""
API_KEYS = frozenset({"VLLM_API_KEY"})


@dataclass
class Found:
    """What the files of one import say."""

    engines: list[Engine] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    zones: list[str] = field(default_factory=list)
    taints: list[tuple[str, str, str]] = field(default_factory=list)
    """Key, value and place of the taints of node pools in the files."""
    tolerations: list[tuple[str, str]] = field(default_factory=list)
    """Keys and values that pods tolerate; an empty one is any."""
    pool_selectors: dict[str, list[str]] = field(default_factory=dict)

    def note(self, kind: Kind, where: str, what: str, why: str) -> None:
        """Add a note."""
        self.notes.append(Note(kind, where, what, why))
