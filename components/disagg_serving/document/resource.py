"""One registration of a recorded program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..records import Record

STACK_TYPE = "pulumi:pulumi:Stack"
COMPUTED, SECRET = "<computed>", "<secret>"
"""What stands for values that only the deployment knows, and for secrets."""


@dataclass(frozen=True)
class Resource(Record):
    """A registration, as the engine would receive it."""

    urn: str
    type: str
    """Type token, such as `kubernetes:core/v1:Namespace`."""
    name: str
    parent: str | None
    """URN."""
    provider: str | None
    """URN, null for the default provider."""
    remote: bool
    """Whether only the engine expands it: a component of a package, or a chart."""
    custom: bool
    """Whether a provider manages it; false for components."""
    inputs: Mapping[str, Any]
    """As declared; `<computed>` stands for what only the deployment knows, `<secret>` for secrets."""
    depends_on: Sequence[str]
    """URNs."""
    input_dependencies: Mapping[str, Sequence[str]] = field(default_factory=dict, kw_only=True)
    """By input: URNs of the resources that it is made from."""
    options: Mapping[str, Any]
    """Options that are set, such as `protect` and `aliases`."""

    @property
    def real(self) -> bool:
        """Whether something exists for it: what only groups other resources is a component of ours."""
        return self.custom or self.remote


Resources = Mapping[str, Resource]
"""Resources by URN."""
