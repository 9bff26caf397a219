"""The plan of a stack: what is made, whether it passes the checks, where the pods land, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..document.cost import Cost
from ..document.placement import AtMost, Autoscaling, PlacedNode, PlacedPool, ScaledRole, ScalingSignal
from ..document.plan import PlanDocument
from ..errors import Finding, Level, ProgramError, SpecError, ToolError, sort_findings
from ..forecast.autoscaling import pace, ready_seconds, signals
from ..forecast.capacities import capacities
from ..forecast.cost import cost_of
from ..forecast.traffic import forecast_of
from ..planning.layout import merge_layouts
from ..planning.placement import Node, by_pool, place
from ..planning.reserved import idle_reserved
from ..planning.scaling import at_most, scaled
from ..planning.shapes import Group, Layout
from ..rules import check_objects
from ..rules.acceptance import accept
from ..rules.declared import KUBERNETES, LEADS
from ..rules.evaluation import Question, evaluate_file
from ..spec.stack_file import ENVIRONMENT_KEY, NAMESPACE, Project, StackFile
from .graph import Graph, declared
from .providers import provider_configuration
from .topology import topology_of


@dataclass(frozen=True, kw_only=True)
class Plan(PlanDocument):
    """The plan of a stack of this working tree: what is published, and what it was made from."""

    graph: Graph
    layout: Layout | None


def assemble(  # noqa: PLR0913, PLR0917 (what a plan is made from)
    project: str,
    stack: str,
    graph: Graph,
    findings: Sequence[Finding],
    layout: Layout | None = None,
    providers: Mapping[str, Mapping[str, Any]] | None = None,
) -> Plan:
    """The plan of what was recorded, with all that follows from the layout; nothing is placed or costs anything without one."""
    full = at_most(layout) if layout else None
    return Plan(
        project=project,
        stack=stack,
        providers=providers or {},
        resources=list(graph.resources.values()),
        callbacks=graph.callbacks,
        checks=findings,
        capacity=capacities(layout) if layout else (),
        forecast=[f for s in layout.served if (f := forecast_of(full, s))] if layout and full else (),
        placement=placement_of(layout) if layout else (),
        cost=cost_of(layout) if layout else Cost(),
        autoscaling=scaling_of(layout) if layout else Autoscaling(),
        topology=topology_of(layout) if layout else "",
        graph=graph,
        layout=layout,
    )


def placement_of(layout: Layout) -> list[PlacedPool]:
    """Pools with their nodes, what stays idle on each, and pods that no node can hold."""
    groups = by_pool(layout.groups)
    by_key = {g.pool: g.instance.id for g in layout.groups}
    used, idle = ", ".join(sorted(set(by_key.values()))), idle_reserved(layout)
    return [
        PlacedPool(
            key,
            pool.instance.id if pool else used,
            [PlacedNode(list(n.pods), n.idle_gpus, n.idle_efa) for n in nodes],
            _unplaced(groups[key], nodes),
            idle.get(key, 0),
        )
        for key, pool, nodes in place(layout)
    ]


def _unplaced(groups: Sequence[Group], nodes: Sequence[Node]) -> list[str]:
    return sorted({pod for g in groups for names in g.pods() for pod in names} - {pod for n in nodes for pod in n.pods})


def scaling_of(layout: Layout) -> Autoscaling:
    """Bounds, signals and pace of scaled roles, and the placement and cost of all roles at their most; the plan's own are at their least."""
    groups = scaled(layout.groups)
    if not groups:
        return Autoscaling()
    full = at_most(layout)
    return Autoscaling([_scaled_role(g) for g in groups], AtMost(placement_of(full), cost_of(full)))


def _scaled_role(group: Group) -> ScaledRole:
    return ScaledRole(
        model=group.served.spec.name,
        generation=group.served.spec.generation or "",
        role=group.role,
        min_replica_count=group.spec.least_replicas,
        max_replica_count=group.spec.most_replicas,
        signals=[ScalingSignal(s.name, s.threshold) for s in signals(group)],
        ready_seconds=ready_seconds(group),
        scale_up_period_seconds=pace(group).up_period,
        scale_down_window_seconds=pace(group).down_window,
    )


def make_plan(project: Project, file: StackFile) -> Plan:
    """Check a stack and record its program.

    Failed checks do not stop the recording as long as the spec is whole enough for one. Raises SpecError when a program of the
    user's own refuses its input.
    """
    if project.runtime != "python":
        raise ToolError(f"the program of {project.name} is written for {project.runtime}; only Python programs can be recorded")
    known = None if _no_environment(file) else evaluate_file(file, project.root)
    if known is not None and known.layout is None:
        return assemble(project.name, file.stack, Graph(), known.findings)
    from .recorder import record  # noqa: PLC0415 (slow: pulumi)

    config = {**_defaults(project), **file.config}
    if file.environment is not None:
        config[ENVIRONMENT_KEY] = file.environment
    named = known.spec.secret_keys() if known is not None and known.spec is not None else []
    # a key that is not in the file may come from an ESC environment; rule secret-keys has said so
    secrets = file.secrets | {f"{NAMESPACE}:{key}" for _, key in named}
    providers = provider_configuration(config, secrets)
    answer = (Question.of_file(file, project.root), known) if known is not None else None
    recording = record(project.program, project.name, file.stack, config, secrets, known=answer)
    # an ESC environment may lead the default provider to a cluster
    keys = {*config, *secrets, *([f"{KUBERNETES}{LEADS[0]}"] if file.imports else [])}
    about_objects = check_objects(declared(recording.graph, keys))
    if known is not None:
        reasons = known.spec.accept if known.spec is not None else {}
        findings = sort_findings([*known.findings, *accept(about_objects, reasons)])
        return assemble(project.name, file.stack, recording.graph, findings, known.layout, providers)
    # a program of the user's own: its components know what they were given
    findings = sort_findings([*(f for e in recording.evaluations for f in e.findings), *about_objects])
    layout = merge_layouts([e.layout for e in recording.evaluations if e.layout is not None])
    return assemble(project.name, file.stack, recording.graph, findings, layout, providers)


def make_plans(project: Project, stacks: Sequence[str], before: Callable[[str], object] = str) -> list[Plan]:
    """Plans of several stacks, `before` each of which a line about it is given.

    A stack that cannot be read, refuses its input or stops is shown with the reasons and does not hide the others.
    """
    plans = []
    for i, stack in enumerate(stacks, 1):
        before(f"planning {i}/{len(stacks)} {stack}")
        try:
            plans.append(make_plan(project, project.stack_file(stack)))
        except SpecError as problem:
            plans.append(assemble(project.name, stack, Graph(), problem.findings))
        except ProgramError as problem:
            finding = Finding("program", Level.ERROR, f"stack {stack}", f"has a program that stops: {problem.reason}")
            plans.append(assemble(project.name, stack, Graph(), [finding]))
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
    return bool(plan.severities() & levels)
