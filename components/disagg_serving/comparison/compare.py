"""Two plans of one stack, compared resource by resource as the engine would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..document.difference import NEW_ID, Change, CheckChanges, Difference, Op, PathChange
from ..document.plan import PlanDocument
from ..document.resource import COMPUTED, SECRET, STACK_TYPE, Resource, Resources
from ..errors import Finding, Level, sort_findings
from ..planning.rolling import rolling
from ..recording.graph import Graph
from ..recording.plan import Plan, assemble
from . import default_provider
from .base_plan import ALL, BasePlans, read_plan
from .effects.weigh import with_effects, worst_first
from .figures import compare_at_most, compare_capacity, compare_checks, compare_cost, compare_placement
from .renames import Rename, find_renames
from .replacements import checked_on, covers, forces_replacement, is_known
from .revision import Revision
from .values import differences

OPTIONS = ("protect", "retainOnDelete", "deletedWith", "ignoreChanges", "replaceOnChanges", "additionalSecretOutputs", "customTimeouts")
"""Options whose change the state keeps; the others only steer one run."""

P = TypeVar("P", bound=PlanDocument)


def with_differences(plans: Sequence[Plan], base: BasePlans, revision: Revision, *, every: bool) -> list[Plan]:
    """The plans, each with its difference; with `every` also those of stacks that only the base has."""
    found = []
    shared = [*revision.notes, *base.notes]
    unknown = sorted(base.failures.keys() - {ALL, *(p.stack for p in plans)}) if every else []
    for plan in [*plans, *(assemble(plans[0].project if plans else "", s, Graph(), []) for s in unknown)]:
        before, failure = base.plans.get(plan.stack), base.failure(plan.stack)
        if failure is not None:
            found.append(_not_compared(plan, before, revision, failure, shared))
            continue
        notes = [] if before else [f"{revision.asked} has no stack {plan.stack}: everything counts as new"]
        pools = rolling(plan.layout) if plan.layout else None
        found.append(compare(before, plan, revision.asked, revision.commit, [*shared, *notes], pools))
    gone = sorted(base.plans.keys() - {p.stack for p in found}) if every else []
    return [*found, *(_without_file(base.plans[stack], revision) for stack in gone)]


def _without_file(before: PlanDocument, revision: Revision) -> Plan:
    """A stack that only the base has: nothing happens to what it deployed, which somebody has to know."""
    stack = before.stack
    message, fix = f"is gone, but what it deployed stays until `pulumi destroy --stack {stack}`", f"run that at {revision.asked}, or keep the file"
    finding = Finding("stack-file", Level.WARNING, f"Pulumi.{stack}.yaml", message, fix=fix)
    difference = Difference(
        revision.asked, revision.commit, notes=revision.notes, unchanged=len(_resources(before)), checks=CheckChanges(new=[finding])
    )
    return replace(assemble(before.project, stack, Graph(), [finding]), difference=difference)


def _of_another_project(before: PlanDocument, after: PlanDocument) -> list[Change]:
    """What a renamed project means: its stacks are others, with a state of their own."""
    old, new, stack = before.project, after.project, after.stack
    stack_urn = _stack_urn(after)
    if not before.resources or old == new or stack_urn is None:
        return []
    effect = (
        f"the project {old} is now {new}, which has another state: nothing of {old} is deleted, and all is made anew beside it where names allow; "
        f"`pulumi stack rename <organization>/{new}/{stack}` takes the state along"
    )
    former = _stack_urn(before) or f"urn:pulumi:{stack}::{old}::{STACK_TYPE}::{old}-{stack}"
    return [Change(stack_urn, STACK_TYPE, f"{new}-{stack}", Op.RENAME, (), effect, Level.ERROR, former)]


def _stack_urn(plan: PlanDocument) -> str | None:
    return next((r.urn for r in plan.resources if r.type == STACK_TYPE), None)


def _not_compared(plan: Plan, before: PlanDocument | None, revision: Revision, failure: str, notes: Sequence[str]) -> Plan:
    """The plan with a finding in place of changes; the checks of a base that only refuses its input are compared."""
    message = f"has no plan of {revision.asked} ({revision.commit[:10]}) to be compared with: {failure}"
    fix = "give --base a revision that can be planned, or look at `pulumi preview`"
    checks = compare_checks(before.checks, plan.checks) if before else CheckChanges()
    difference = Difference(revision.asked, revision.commit, compared=False, notes=notes, checks=checks)
    finding = Finding("base-not-compared", Level.ERROR, f"stack {plan.stack}", message, None, "", fix)
    return replace(plan, checks=sort_findings([*plan.checks, finding]), difference=difference)


def compare(  # noqa: PLR0913, PLR0917 (two plans, and what is known about both)
    before: PlanDocument | None,
    after: P,
    base: str,
    commit: str,
    notes: Sequence[str] = (),
    rolling: Mapping[str, str] | None = None,
) -> P:
    """The plan `after` with what differs from `before`, which may lack what its release did not say; None where there was no such stack."""
    before = before or read_plan({})
    old, new = _resources(before), _resources(after)
    checks = compare_checks(before.checks, after.checks)
    if not new and after.checks:
        # what is refused declares nothing, which does not mean that anything is deleted
        notes = [*notes, "the checks stop before any resource is declared, so only they are compared"]
        return replace(after, difference=Difference(base, commit, compared=False, notes=notes, checks=checks))
    moved = _of_another_project(before, after)
    if moved:
        old = {}
    if old and new and default_provider.has_provider(after) and not default_provider.has_provider(before):
        notes = [*notes, f"{base} does not say its aws: configuration: region, account and tags are not compared"]
    declared = len(new)
    old, new = default_provider.with_default_provider(before, after, old, new)
    renames = find_renames(old, new)
    changes = _changes(old, new, renames)
    judged = with_effects(changes, old, new, frozenset(r.urn for r in renames if r.by_alias), rolling)
    more_nodes, more_cost = compare_at_most(before, after)
    difference = Difference(
        base,
        commit,
        notes=[*notes, *_notes(old, new, changes)],
        unchanged=declared - sum(c.urn in new and c.type != default_provider.TYPE for c in changes),
        capacity=compare_capacity(before.capacity, after.capacity),
        placement=[*compare_placement(before.placement, after.placement), *more_nodes],
        cost=[*compare_cost(before.cost, after.cost), *more_cost],
        checks=checks,
    )
    ordered = sorted(judged, key=lambda c: worst_first(c, new.get(c.urn) or old[c.urn]))
    return replace(after, changes=[*moved, *ordered], difference=difference)


def _resources(plan: PlanDocument) -> Resources:
    """By URN; the stack itself is left out."""
    return {r.urn: r for r in plan.resources if r.type != STACK_TYPE}


def _changes(old: Resources, new: Resources, renames: Sequence[Rename]) -> list[Change]:
    formers = {r.urn: r for r in renames}
    gone = old.keys() - new.keys() - {r.former for r in renames}
    found: dict[str, Change] = {}
    made: set[str] = set()
    for urn in _in_order(new):
        resource, rename = new[urn], formers.get(urn)
        if urn not in old and rename is None:
            found[urn] = _change(resource, Op.CREATE, ())
            made.add(urn)
            continue
        former = old[rename.former if rename else urn]
        paths = _path_changes(former, resource, found, made)
        op = Op.REPLACE if any(p.forces_replacement for p in paths) else Op.UPDATE
        if op is Op.REPLACE or (rename is not None and not rename.by_alias):
            made.add(urn)
        if rename is not None:
            found[urn] = replace(_change(resource, Op.RENAME if op is Op.UPDATE or not rename.by_alias else op, paths), former=rename.former)
        elif paths:
            found[urn] = _change(resource, op, paths)
    return [*found.values(), *(_change(old[urn], Op.DELETE, ()) for urn in sorted(gone))]


def _change(resource: Resource, op: Op, paths: Sequence[PathChange]) -> Change:
    return Change(resource.urn, resource.type, resource.name, op, paths)


def _in_order(resources: Resources) -> list[str]:
    """URNs with what a resource is made from before it; a program cannot register them otherwise."""
    order: dict[str, None] = {}
    todo = sorted(resources, reverse=True)
    opened: set[str] = set()
    while todo:
        urn = todo[-1]
        sources = {*_sources(resources[urn]), resources[urn].provider or ""} & resources.keys() - order.keys() - opened
        opened.add(urn)
        if sources:
            todo += sorted(sources, reverse=True)
        else:
            order[todo.pop()] = None
    return list(order)


def _sources(resource: Resource) -> set[str]:
    return {urn for urns in resource.input_dependencies.values() for urn in urns}


def _path_changes(old: Resource, new: Resource, found: Mapping[str, Change], made: set[str]) -> list[PathChange]:
    """What differs between two recordings of one resource, and what follows from resources before it; those in `made` are new ones."""
    options = new.options
    on_changes = options.get("replaceOnChanges", ())
    changes = [
        PathChange(path, before, after, forces_replacement(new.type, path) or any(covers(p, path) for p in on_changes))
        for path, before, after in differences(old.inputs, new.inputs)
        if not any(covers(p, path) for p in options.get("ignoreChanges", ()))
    ]
    changes += [PathChange(f"options.{path}", before, after) for path, before, after in differences(_kept_options(old), _kept_options(new))]
    same = {change.former: urn for urn, change in found.items() if change.former}
    for key, urns in new.input_dependencies.items():
        sources = {same.get(urn, urn) for urn in old.input_dependencies.get(key, urns)}
        other = bool(made & set(urns)) or sources != set(urns)
        if other and _holds_computed(new.inputs.get(key)) and not any(covers(key, c.path) for c in changes):
            value = SECRET if new.inputs[key] == SECRET else COMPUTED
            changes.append(PathChange(key, value, NEW_ID, forces_replacement(new.type, key)))
    if new.provider in made or (old.provider and new.provider and same.get(old.provider, old.provider) != new.provider):
        changes.append(PathChange("options.provider", old.provider, new.provider, forces_replacement=True))
    return changes


def _kept_options(resource: Resource) -> dict[str, Any]:
    return {key: value for key, value in resource.options.items() if key in OPTIONS}


def _holds_computed(value: Any) -> bool:
    """Whether a value is, or may be made of, what is not known yet: a secret hides which."""
    if isinstance(value, Mapping):
        return any(_holds_computed(v) for v in value.values())
    if isinstance(value, list):
        return any(_holds_computed(v) for v in value)
    return value in (COMPUTED, SECRET)


def _notes(old: Resources, new: Resources, changes: Sequence[Change]) -> list[str]:
    notes = []
    versions = {
        (r.type.split(":", 1)[0], r.options.get("version"), other.options.get("version"))
        for urn, r in old.items()
        if (other := new.get(urn)) is not None and not r.type.startswith("pulumi:")
    }
    notes += [f"provider {p} goes from {a} to {b}, which may change more than is shown" for p, a, b in sorted(versions, key=str) if a != b]
    verdicts = [c for c in changes if c.op in (Op.UPDATE, Op.REPLACE) and c.type.startswith(("aws:", "eks:"))]
    if verdicts:
        notes.append(f"whether an AWS resource is updated or replaced follows a table of {checked_on()}, not the provider")
    unknown = sorted({c.type for c in verdicts if not is_known(c.type)})
    if unknown:
        notes.append(f"not in that table, so shown as an update: {', '.join(unknown)}")
    remote = sorted({c.type.rsplit(":", 1)[1] for c in changes if (new.get(c.urn) or old[c.urn]).remote})
    if remote:
        notes.append(f"compared by its inputs alone, as the engine expands it: {', '.join(remote)}")
    return notes
