"""What a rule means, what to do about it, a bad and a good case: data beside the rules, one file each in `cases/`, for readers and tests alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..yaml_io import read_yaml
from .looked_up import LookedUp

CASES_DIR = Path(__file__).parent / "cases"


LANGUAGES = {".yaml": "yaml", ".py": "python", ".json": "json"}


@dataclass(frozen=True)
class Part:
    """A file of a case, or what stands for one: its name, its language as Markdown calls it, and its text."""

    name: str
    language: str
    text: str


class _Data(BaseModel):
    """Base of what the files hold: nothing in them is ignored or converted."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class _Answers(_Data):
    """The form of recorded answers."""

    given: LookedUp


class Case(_Data):
    """Input of the tool: a project with a stack file, with a program, or for another command than `check` and `plan`."""

    stack: str | None = Field(None, description="The text of the stack file.")
    program: str | None = Field(None, description="The text of the project's `__main__.py`, for rules that read what a program declares.")
    command: str | None = Field(None, description="The command that gives the finding, where neither `check` nor `plan` does.")
    files: Mapping[str, str] = Field({}, description="Other files of the project: path and text.")
    answers: str | None = Field(None, description="The text of what AWS answered, for rules about look-ups: YAML with the fields of LookedUp.")

    def parts(self) -> list[Part]:
        """What a reader sees, in the order of a person's work: stack file, program, other files, AWS's answers, the command."""
        texts = {"Pulumi.prod.yaml": self.stack, "__main__.py": self.program, **self.files}
        shown = [Part(name, LANGUAGES.get(Path(name).suffix, "text"), text) for name, text in texts.items() if text is not None]
        if self.answers is not None:
            shown.append(Part("what AWS answers", "yaml", self.answers))
        if self.command is not None:
            shown.append(Part("the command", "text", self.command))
        return shown

    def looked_up(self) -> LookedUp | None:
        """The recorded answers. Raises ValidationError where they have another form."""
        return None if self.answers is None else _Answers(given=yaml.safe_load(self.answers)).given


class Explanation(_Data):
    """What is said about a rule beside its summary."""

    means: str = Field(description="What goes wrong where the rule is broken.")
    do: str = Field(description="What a person does about it.")
    bad: Case | None = Field(None, description="Input that has the finding.")
    good: Case | None = Field(None, description="The same input without it.")
    tested_in: str | None = Field(None, description="The test that shows a finding which needs more than files: `path::function`.")

    @model_validator(mode="after")
    def _shown_once(self) -> Explanation:
        if (self.bad is None) != (self.good is None) or (self.bad is None) == (self.tested_in is None):
            raise ValueError("needs bad and good, or tested_in")
        return self


def explanation_of(rule_id: str) -> Explanation:
    """The explanation of a rule or a form check. Raises OSError where it has no file, ValidationError where that has another form."""
    return Explanation.model_validate(read_yaml(CASES_DIR / f"{rule_id}.yaml"))
