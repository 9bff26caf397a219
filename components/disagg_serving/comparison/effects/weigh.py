"""What changes mean for what runs: a sentence a resource, and how much it weighs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ... import labels
from ...document.difference import Change, Op
from ...document.resource import Resource, Resources
from ...errors import Level
from ..replacements import is_refused
from .aws import AWS_EFFECTS
from .cases import NODE_POOL, SERVICE, Case, Effect, Judge, get, join
from .kubernetes import CHART, KUBERNETES_EFFECTS
from .serving import LWS, PAIRED, kv_contract, pod_templates, role_of, selected_apart

KUBERNETES = "pulumi:providers:kubernetes"
CLUSTERS = ("eks:index:Cluster", "aws:eks/cluster:Cluster")
WITH_CLUSTER = "it goes with the cluster that it is in"
MIXED = "while it rolls, prefill and decode of two revisions exchange KV, which may fail"
JUDGES: Mapping[str, Judge] = {**AWS_EFFECTS, **KUBERNETES_EFFECTS}
OPS = (Op.RENAME, Op.REPLACE, Op.DELETE, Op.UPDATE, Op.CREATE)
WORST_FIRST = (
    "pulumi:providers:aws",
    "aws:s3/bucket:Bucket",
    "aws:kms/key:Key",
    "eks:index:Cluster",
    KUBERNETES,
    "aws:ec2/vpc:Vpc",
    "aws:ec2/subnet:Subnet",
    LWS,
    "kubernetes:eks.amazonaws.com/v1:NodeClass",
    NODE_POOL,
    CHART,
    "kubernetes:core/v1:Namespace",
    SERVICE,
    "aws:ec2/natGateway:NatGateway",
)
"""Types whose loss costs most, at equal severity: data, the cluster, the network, groups of engines, nodes, the way in."""


def with_effects(
    changes: Sequence[Change], before: Resources, after: Resources, kept: frozenset[str] = frozenset(), rolling: Mapping[str, str] | None = None
) -> list[Change]:
    """The same changes, each with what it means.

    `before` and `after` are all resources of the two plans by URN, `kept` the new URNs whose resources stay because of an alias, `rolling`
    says by pool what becomes of drifted nodes.
    """
    mixed = _mixed_roles(changes, before, after)
    lost = _lost_providers(changes, before, kept)
    judged = []
    for change in changes:
        case = Case(change, before.get(change.former or change.urn), after.get(change.urn), before, after, rolling or {})
        by_alias = change.urn in kept
        made_anew = change.op is Op.RENAME and not by_alias
        judge = JUDGES.get(change.type)
        if case.before and case.before.provider in lost:
            own = [Effect(WITH_CLUSTER, Level.WARNING)]
        else:
            own = [] if made_anew else [*mixed.get(change.urn, ()), *(judge(case) if judge else ())]
        effect = join([*_of_any(case, by_alias=by_alias), *own])
        judged.append(replace(change, effect=effect.text, severity=effect.level))
    return judged


def worst_first(change: Change, resource: Resource) -> tuple[Any, ...]:
    """A key that sorts changes: by severity, then what costs most to lose, then components after what is in them."""
    place = WORST_FIRST.index(change.type) if change.type in WORST_FIRST else len(WORST_FIRST)
    return change.severity.rank, not resource.real, place, OPS.index(change.op), change.urn


def _of_any(case: Case, *, by_alias: bool) -> Iterator[Effect]:
    """What holds for every type."""
    change = case.change
    if change.former is not None:
        yield _renamed(case, change.former, by_alias=by_alias)
    away = case.goes or (change.op is Op.RENAME and not by_alias)
    if away and case.before and case.before.options.get("protect"):
        yield Effect("it is protected: the engine refuses until an update with protect: false has run", Level.ERROR)
    elif any(p.path == "options.protect" and p.before and not p.after for p in change.paths):
        yield Effect("it is no longer protected: a later change may delete it", Level.WARNING)
    if change.op is Op.UPDATE and change.paths and not case.paths():
        yield Effect("only what Pulumi notes about it changes")
    refused = [p.path for p in change.paths if is_refused(change.type, p.path)]
    if change.op is Op.UPDATE and refused:
        yield Effect(f"the API server refuses to change {', '.join(refused)} of an object that exists", Level.ERROR)
    if change.type.startswith("pulumi:providers:") and change.op is Op.REPLACE:
        yield Effect("everything that was made through this provider is deleted and made anew", Level.ERROR)


def _renamed(case: Case, former: str, *, by_alias: bool) -> Effect:
    """A URN that changed; one of the two names, or the parents, say how."""
    name, parent = former.rsplit("::", 1)[1], former.split("::")[2].rpartition("$")[0].rpartition(":")[2]
    was = name if name != case.change.name else f"{name} of {parent or 'the stack'}"
    if by_alias:
        return Effect(f"was {was}; its alias keeps it")
    if case.after and not case.after.real:
        return Effect(f"was {was}, without an alias: all in it is made anew, and what runs is deleted", Level.ERROR)
    return Effect(f"was {was}, without an alias: it is made anew, and the one that runs is deleted", Level.ERROR)


def _lost_providers(changes: Sequence[Change], before: Resources, kept: frozenset[str]) -> set[str]:
    """Providers of clusters that are deleted: what was made through them goes, whatever else is said of it."""
    gone = [c for c in changes if c.op in (Op.DELETE, Op.REPLACE) or (c.op is Op.RENAME and c.urn not in kept)]
    clusters = {c.former or c.urn for c in gone if c.type in CLUSTERS}
    providers = [r for r in before.values() if r.type == KUBERNETES]
    return {r.urn for r in providers if clusters & {urn for urns in r.input_dependencies.values() for urn in urns}}


def _mixed_roles(changes: Sequence[Change], before: Resources, after: Resources) -> dict[str, list[Effect]]:
    """Prefill and decode of one model roll by themselves: where what they must share changes, both revisions serve together for a while."""
    roles: dict[tuple[str, str], dict[str, str]] = {}
    for urn, resource in after.items():
        found = role_of(resource) if resource.type == LWS else None
        if found is not None:
            roles.setdefault((found[0], _identity(resource)), {})[found[1]] = urn
    effects: dict[str, list[Effect]] = {}
    updated = {c.urn: before[c.former or c.urn] for c in changes if c.type == LWS and c.op is Op.UPDATE}
    for by_role in roles.values():
        if by_role.keys() >= set(PAIRED):
            urns = [urn for urn in by_role.values() if urn in updated and kv_contract(updated[urn]) != kv_contract(after[urn])]
            if not all(selected_apart(updated[urn], after[urn], after) for urn in urns):
                effects |= {urn: [Effect(MIXED, Level.WARNING)] for urn in urns}
    return effects


def _identity(workload: Resource) -> str:
    """What tells the pods of a pair from those of a candidate of the same model; nothing where somebody else wrote them."""
    return next((str(found) for t in pod_templates(workload) if (found := (get(t, "metadata.labels") or {}).get(labels.IDENTITY))), "")
