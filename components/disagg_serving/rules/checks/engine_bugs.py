"""Known bugs of engine releases, as data of the catalogue: one rule reads them all."""

from __future__ import annotations

from collections.abc import Iterator

from ...catalog.bugs import Bug, BugConditions
from ...errors import Level
from ...planning.connector import connector_of
from ...planning.extras import setting_of, written_arguments, written_variables
from ...planning.shapes import Served, group_size
from ..registry import Fault, Stage, Subject, rule, use


@rule("engine-bugs", Level.WARNING, Stage.FORM, "our choice: CONTRIBUTING.md; each finding names the issue", reads=("connector", "speculative"))
def engine_bugs(s: Subject) -> Iterator[Fault]:
    """The engine's release has no known bug that the model meets."""
    bugs = [s.catalog.bugs[bug] for bug in s.catalog.bugs]
    for served in s.served:
        met = [bug for bug in bugs if _meets(served, bug.when)]
        # engines that nobody asks for are not read
        asked = s.catalog.engines if any(bug.is_in(served.engine) for bug in met) else []
        able = [e for e in asked if not any(bug.is_in(s.catalog.engines[e]) for bug in met)]
        fitting = [e for e in able if s.catalog.engines[e].libfabric or not served.engine.libfabric]
        for bug in met:
            if bug.is_in(served.engine):
                path, level = f"{served.path}.engine", Level(bug.level)
                until = f"; until then, {bug.advice}" if bug.advice else ""
                message = f"{bug.effect} ({_issue(bug)}){until}"
                yield Fault(path, message, served.spec.engine, ", ".join(fitting), level=level, ways=[use(path, *reversed(fitting))])


def _meets(served: Served, when: BugConditions) -> bool:
    """Whether everything that a bug needs holds of a model."""
    model, facts, roles = served.spec, served.facts, served.spec.roles
    holds = {
        "disaggregated": model.disaggregated,
        "hybrid": facts.sliding_window is not None or facts.linear_attention is not None,
        "latent": facts.mla is not None,
        "speculative": model.speculative is not None,
        "offload": any(connector_of(model, name).offload for name in roles),
        "mode": model.connector.mode if model.disaggregated else None,
        "wide_experts": any(r.expert_parallel and r.data_parallel > 1 and group_size(r, served.instances[n]) > 1 for n, r in roles.items()),
    }
    asked = {key: getattr(when, key) for key in holds if getattr(when, key) is not None}
    flags = {setting_of(extra.value) for extra in written_arguments(model)}
    return (
        all(holds[key] == value for key, value in asked.items())
        and (not when.architectures or facts.architecture in when.architectures)
        and (not when.flags or not flags.isdisjoint(map(setting_of, when.flags)))
        and (not when.variables or not {name for name, _ in written_variables(model)}.isdisjoint(when.variables))
    )


def _issue(bug: Bug) -> str:
    return bug.source[0]
