"""Resources whose URN changed though they are the same to a reader: renamed, moved under another parent, or of a renamed component."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..document.resource import Resource, Resources
from .values import differences

PHYSICAL = ("bucket", "name", "namePrefix")
"""Inputs of AWS types that name the real thing: where they differ, it is another thing and no rename."""


@dataclass(frozen=True)
class Rename:
    """A former URN and the new one; `by_alias` where an alias keeps the resource."""

    former: str
    urn: str
    by_alias: bool


def find_renames(before: Resources, after: Resources) -> list[Rename]:
    """Pairs among what is gone and what is new, each resource in one pair at most; both mappings are resources of a plan by URN.

    In this order: an alias of its own or of a parent names the former URN; type and name are the same under another parent; the same
    Kubernetes object; a child of a renamed component whose inputs are the same but for the component's name.
    """
    gone = {urn: r for urn, r in before.items() if urn not in after}
    new = {urn: r for urn, r in after.items() if urn not in before}
    pairs: dict[str, Rename] = {}
    matched: set[str] = set()
    for former, urn, by_alias in _candidates(gone, new, after):
        if urn not in pairs and former not in matched:
            pairs[urn] = Rename(former, urn, by_alias)
            matched.add(former)
    # a component is renamed if something real in it is; else its new contents are other things, as with a model of another name
    inside = {up for urn in pairs if after[urn].real for up in _above(urn, after)}
    return [p for urn, p in pairs.items() if after[urn].real or p.by_alias or urn in inside]


def _candidates(gone: Resources, new: Resources, after: Resources) -> Iterator[tuple[str, str, bool]]:
    """Former URN, new URN, and whether an alias says so; the surest first."""
    yield from ((former, urn, True) for urn in new for former in _aliases(urn, after) if former in gone)
    for key in (_moved, _object):
        by_key = defaultdict(list)
        for former, resource in gone.items():
            by_key[key(resource)].append(former)
        for urn, resource in new.items():
            found = by_key.get(key(resource), []) if key(resource) else []
            if len(found) == 1:
                yield found[0], urn, False
    by_name = {(r.type, r.name): former for former, r in gone.items()}
    for old_name, new_name in _renamed_components(gone, new):
        for urn, resource in new.items():
            former = by_name.get((resource.type, resource.name.replace(new_name, old_name, 1)), "")
            if former and _same_but_for(gone[former], resource, old_name, new_name):
                yield former, urn, False


def _above(urn: str, resources: Resources) -> set[str]:
    parent = resources[urn].parent
    return {parent, *_above(parent, resources)} if parent and parent in resources else set()


def _moved(resource: Resource) -> Any:
    return resource.type, resource.name


def _object(resource: Resource) -> Any:
    metadata = resource.inputs.get("metadata") if resource.type.startswith("kubernetes:") else None
    return (resource.type, metadata.get("namespace"), metadata["name"]) if isinstance(metadata, Mapping) and "name" in metadata else None


def _renamed_components(gone: Resources, new: Resources) -> list[tuple[str, str]]:
    """Names of components of which one of a type is gone and one is new in the same place; outer ones first."""

    def by_place(resources: Resources) -> dict[str, list[str]]:
        found = defaultdict(list)
        for urn, r in resources.items():
            if not r.real:
                found[urn.split("::")[2]].append(r.name)
        return found

    old, fresh = by_place(gone), by_place(new)
    names = [(old[place][0], fresh[place][0]) for place in sorted(old, key=len) if len(old[place]) == len(fresh.get(place, [])) == 1]
    return list(dict.fromkeys(names))


def _same_but_for(old: Resource, new: Resource, old_name: str, new_name: str) -> bool:
    if new.type.startswith("kubernetes:") and _object(new):
        return False  # another object, which the other ways have not found
    for path, before, after in differences(old.inputs, new.inputs):
        if path in PHYSICAL or not isinstance(before, str) or before.replace(old_name, new_name) != after:
            return False
    return True


def _aliases(urn: str, resources: Resources) -> list[str]:
    """URNs that the engine looks for in the state besides the resource's own: its aliases, and those that follow from its parent's."""
    resource = resources[urn]
    parent = resource.parent
    own = [_alias_urn(a, resource, resource.name, parent) for a in resource.options.get("aliases", ())]
    if parent is None or parent not in resources:
        return own
    inherited = []
    for former in _aliases(parent, resources):
        old_name, name = former.rsplit("::", 1)[1], resource.name
        if name.startswith(resources[parent].name):
            name = old_name + name[len(resources[parent].name) :]
        inherited += [_alias_urn(a, resource, name, former) for a in ({}, *resource.options.get("aliases", ()))]
    return [*own, *inherited]


def _alias_urn(alias: Any, resource: Resource, name: str, parent: str | None) -> str:
    if isinstance(alias, str):
        return alias
    stack, project = resource.urn.split("::")[:2]
    if "stack" in alias:
        stack = f"urn:pulumi:{alias['stack']}"
    parent = None if alias.get("noParent") else alias.get("parentUrn", parent)
    above = parent.split("::")[2] if parent else ""
    qualified = f"{above}${alias.get('type', resource.type)}" if above not in ("", "pulumi:pulumi:Stack") else alias.get("type", resource.type)
    return f"{stack}::{alias.get('project', project)}::{qualified}::{alias.get('name', name)}"
