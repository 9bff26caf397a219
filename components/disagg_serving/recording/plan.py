"""The plan of a stack: what is made, whether it passes the checks, where the pods land, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..document.cost import Cost
from ..errors import Finding, Level, ProgramError, SpecError, ToolError, sort_findings
from ..forecast.autoscaling import pace, ready_seconds, signals
from ..forecast.capacities import capacities
from ..forecast.cost import cost_of
from ..forecast.traffic import forecast_of
from ..planning.layout import merge_layouts
from ..planning.placement import Node, by_pool, place
from ..planning.scaling import at_most, scaled
from ..planning.shapes import Group, Layout
from ..records import data_of
from ..rules import check_objects
from ..rules.acceptance import accept
from ..rules.declared import KUBERNETES, LEADS
from ..rules.evaluation import Question, evaluate_file
from ..spec.stack_file import ENVIRONMENT_KEY, NAMESPACE, Project, StackFile
from .difference import Difference
from .graph import Graph, declared
from .providers import configured
from .topology import topology_of

VERSION = 1
NO_SCALING: dict[str, Any] = {"roles": [], "atMost": None}


@dataclass(frozen=True)
class Plan:
    """All that a reviewer sees of one stack."""

    project: str
    stack: str
    graph: Graph
    findings: Sequence[Finding]
    layout: Layout | None = None
    difference: Difference | None = None
    providers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The plan as data; the keys are the contract of `plan --format json`."""
        return {
            "version": VERSION,
            "project": self.project,
            "stack": self.stack,
            "providers": {name: dict(given) for name, given in self.providers.items()},
            "resources": [r.as_dict() for r in self.graph.resources.values()],
            "callbacks": dict(self.graph.callbacks),
            "checks": data_of(self.findings),
            "capacity": data_of(capacities(self.layout)) if self.layout else [],
            "forecast": data_of([f for s in self.layout.served if (f := forecast_of(at_most(self.layout), s))]) if self.layout else [],
            "placement": placement_of(self.layout) if self.layout else [],
            "cost": data_of(cost_of(self.layout) if self.layout else Cost()),
            "autoscaling": scaling_of(self.layout) if self.layout else NO_SCALING,
            "changes": [c.as_dict() for c in self.difference.changes] if self.difference else [],
            "difference": self.difference.as_dict() if self.difference else None,
            "topology": topology_of(self.layout) if self.layout else "",
        }


def placement_of(layout: Layout) -> list[dict[str, Any]]:
    """Pools with their nodes, what stays idle on each, and pods that no node can hold."""
    groups = by_pool(layout.groups)
    instances = {g.pool: g.instance.id for g in layout.groups}
    types = {key: pool.instance.id if pool else ", ".join(sorted(set(instances.values()))) for key, pool, _ in place(layout)}
    return [
        {
            "pool": key,
            "instanceType": types[key],
            "nodes": [{"pods": list(n.pods), "idleGpus": n.idle_gpus, "idleEfa": n.idle_efa} for n in nodes],
        }
        | _unplaced(groups[key], nodes)
        for key, _, nodes in place(layout)
    ]


def _unplaced(groups: Sequence[Group], nodes: Sequence[Node]) -> dict[str, Any]:
    left = {pod for g in groups for names in g.pods() for pod in names} - {pod for n in nodes for pod in n.pods}
    return {"unplaced": sorted(left)} if left else {}


def scaling_of(layout: Layout) -> dict[str, Any]:
    """Bounds, signals and pace of scaled roles, and the placement and cost of all roles at their most; `placement` and `cost` are at their least."""
    groups = scaled(layout.groups)
    if not groups:
        return NO_SCALING
    full = at_most(layout)
    roles = [
        {
            **owner_of(g),
            "role": g.role,
            "minReplicaCount": g.spec.least_replicas,
            "maxReplicaCount": g.spec.most_replicas,
            "signals": [{"name": s.name, "threshold": s.threshold} for s in signals(g)],
            "readySeconds": ready_seconds(g),
            "scaleUpPeriodSeconds": pace(g).up_period,
            "scaleDownWindowSeconds": pace(g).down_window,
        }
        for g in groups
    ]
    return {"roles": roles, "atMost": {"placement": placement_of(full), "cost": data_of(cost_of(full))}}


def owner_of(group: Group) -> dict[str, str]:
    """Its model, and the generation where there is one."""
    generation = group.served.spec.generation
    return {"model": group.served.spec.name, **({"generation": generation} if generation else {})}


def make_plan(project: Project, file: StackFile) -> Plan:
    """Check a stack and record its program.

    Failed checks do not stop the recording as long as the spec is whole enough for one. Raises SpecError when a program of the
    user's own refuses its input.
    """
    if project.runtime != "python":
        raise ToolError(f"the program of {project.name} is written for {project.runtime}; only Python programs can be recorded")
    known = None if _no_environment(file) else evaluate_file(file, project.root)
    if known is not None and known.layout is None:
        return Plan(project.name, file.stack, Graph(), known.findings)
    from .recorder import record  # noqa: PLC0415 (loads Pulumi, which a refused spec does not need)

    config = {**_defaults(project), **file.config}
    if file.environment is not None:
        config[ENVIRONMENT_KEY] = file.environment
    named = known.spec.secret_keys() if known is not None and known.spec is not None else []
    # a key that is not in the file may come from an ESC environment; rule secret-keys has said so
    secrets = file.secrets | {f"{NAMESPACE}:{key}" for _, key in named}
    providers = configured(config, secrets)
    answer = (Question.of_file(file, project.root), known) if known is not None else None
    recording = record(project.program, project.name, file.stack, config, secrets, known=answer)
    # an ESC environment may lead the default provider to a cluster
    keys = {*config, *secrets, *([f"{KUBERNETES}{LEADS[0]}"] if file.imports else [])}
    about_objects = check_objects(declared(recording.graph, keys))
    if known is not None:
        reasons = known.spec.accept if known.spec is not None else {}
        findings = sort_findings([*known.findings, *accept(about_objects, reasons)])
        return Plan(project.name, file.stack, recording.graph, findings, known.layout, providers=providers)
    # a program of the user's own: its components know what they were given
    findings = sort_findings([*(f for e in recording.evaluations for f in e.findings), *about_objects])
    layout = merge_layouts([e.layout for e in recording.evaluations if e.layout is not None])
    return Plan(project.name, file.stack, recording.graph, findings, layout, providers=providers)


def make_plans(project: Project, stacks: Sequence[str]) -> list[Plan]:
    """Plans of several stacks; one that cannot be read, refuses its input or stops is shown with the reasons and does not hide the others."""
    plans = []
    for stack in stacks:
        try:
            plans.append(make_plan(project, project.stack_file(stack)))
        except SpecError as problem:
            plans.append(Plan(project.name, stack, Graph(), problem.findings))
        except ProgramError as problem:
            finding = Finding("program", Level.ERROR, f"stack {stack}", f"has a program that stops: {problem.reason}")
            plans.append(Plan(project.name, stack, Graph(), [finding]))
    return plans


def _no_environment(file: StackFile) -> bool:
    return file.environment is None and ENVIRONMENT_KEY not in file.secrets


def _defaults(project: Project) -> dict[str, Any]:
    """Defaults of the project's configuration, by full key."""
    found = {}
    for key, entry in project.config.items():
        value = entry.get("value", entry.get("default")) if isinstance(entry, dict) else entry
        if value is not None:
            found[key if ":" in str(key) else f"{project.name}:{key}"] = value
    return found


def fails(plan: Plan, fail_on: Level) -> bool:
    """Whether findings, or what a difference does, reach the level at which a command ends with exit code 2."""
    levels = {Level.ERROR} if fail_on is Level.ERROR else {Level.ERROR, Level.WARNING}
    found = {f.level for f in plan.findings} | (plan.difference.severities() if plan.difference else set())
    return bool(found & levels)
