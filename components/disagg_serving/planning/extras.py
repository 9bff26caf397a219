"""What a person adds to command lines and environments: flags and variables of the model, and those of each role on top of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..spec import ModelSpec, RoleSpec
from ..spec.serving import RoleName


class Extra(NamedTuple):
    """A flag or a variable's value, and where it stands below the model."""

    place: str
    value: str


def setting_of(flag: str) -> str:
    """What a flag sets: its name without value and keys; a switch and its negation set the same."""
    name = flag.split("=", 1)[0].split(".", 1)[0].replace("_", "-")
    return name.replace("--no-", "--", 1).replace("--disable-", "--enable-", 1)


def arguments_of(model: ModelSpec, role: RoleName) -> list[Extra]:
    """The flags that a role's engines get: the model's, less those that the role sets itself, then the role's."""
    own = _arguments(model.roles[role], f"{role}.")
    replaced = {setting_of(extra.value) for extra in own}
    return [extra for extra in _arguments(model) if setting_of(extra.value) not in replaced] + own


def variables_of(model: ModelSpec, role: RoleName) -> dict[str, Extra]:
    """The variables that a role's engines get, by name: the model's and the role's, of which the role's count."""
    return {name: extra for of, above in ((model, ""), (model.roles[role], f"{role}.")) for name, extra in _variables(of, above)}


def written_arguments(model: ModelSpec) -> list[Extra]:
    """Every flag that stands in the stack file."""
    return [extra for of, above in _writers(model) for extra in _arguments(of, above)]


def written_variables(model: ModelSpec) -> list[tuple[str, Extra]]:
    """Every variable that stands in the stack file, with its name."""
    return [found for of, above in _writers(model) for found in _variables(of, above)]


def roles_reached(model: ModelSpec, place: str) -> list[RoleName]:
    """The roles that a flag or variable at a place reaches: all, or the one that it stands in."""
    return [name for name in model.roles if place.startswith(f"{name}.")] or [*model.roles]


def _writers(model: ModelSpec) -> Iterator[tuple[ModelSpec | RoleSpec, str]]:
    yield model, ""
    yield from ((role, f"{name}.") for name, role in model.roles.items())


def _arguments(of: ModelSpec | RoleSpec, above: str = "") -> list[Extra]:
    return [Extra(f"{above}extraArgs[{i}]", flag) for i, flag in enumerate(of.extra_args)]


def _variables(of: ModelSpec | RoleSpec, above: str = "") -> list[tuple[str, Extra]]:
    return [(name, Extra(f"{above}extraEnv.{name}", value)) for name, value in of.extra_env.items()]
