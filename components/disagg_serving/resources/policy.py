"""The rules as a CrossGuard policy pack: one policy a rule, over what the engine is about to deploy.

`pulumi preview --policy-pack` enforces them on real previews, whatever program declared the resources, and whatever its stack file accepts.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pulumi_policy as crossguard
from pulumi_policy.proxy import UnknownValueError

from ..errors import Finding, Level
from ..rules import Rule, StackContext, Stage, check_objects, rules
from ..rules.declared import Declared, default
from ..rules.evaluation import evaluate
from .base import project_folder
from .environment import TYPE as ENVIRONMENT

NAME = "disagg-serving"
ENFORCED = {
    Level.ERROR: crossguard.EnforcementLevel.MANDATORY,
    Level.WARNING: crossguard.EnforcementLevel.ADVISORY,
    Level.INFO: crossguard.EnforcementLevel.DISABLED,
}
"""Errors stop a preview, warnings are shown, what only explains is off; `--policy-pack-config` may say otherwise for each rule."""
REFUSE_ACCEPTED = "refuseAccepted"
SETTINGS = crossguard.PolicyConfigSchema(
    {REFUSE_ACCEPTED: {"type": "boolean", "default": False, "description": "Report also what the stack file accepts."}}
)
OTHERWISE = {
    Level.ERROR: ("disagg-errors", "What rules of a lower level find to be an error here stops a deployment like any other error."),
    Level.WARNING: ("disagg-warnings", "What rules of another level only warn of is shown."),
}
"""An engine knows one enforcement a policy, so findings of another level than their rule's own are reported by a policy of theirs."""
_COMPUTED = "<computed>"


def serve() -> None:
    """Serve the pack to the engine that started this process, until it ends it."""
    crossguard.PolicyPack(name=NAME, policies=policies())


def policies() -> list[crossguard.Policy]:
    """One policy a rule, in the order of `disagg rules`, and one a level for findings that are not of their rule's."""
    environment, objects = _remembered(_of_environment), _remembered(check_objects)
    by_rule = [_over_stack(r, objects) if r.stage is Stage.OBJECTS else _over_environment(r, environment) for r in rules()]
    return [*by_rule, *(_of_other_rules(level, environment) for level in OTHERWISE)]


def _over_environment(rule: Rule, findings: Callable[[Any], list[Finding]]) -> crossguard.Policy:
    def validate(args: crossguard.ResourceValidationArgs, report: crossguard.ReportViolation) -> None:
        if args.resource_type == ENVIRONMENT:
            for finding in _violations(rule, findings(plain(args.props)), args.get_config()):
                report(finding.sentence(), args.urn)

    return crossguard.ResourceValidationPolicy(rule.id, rule.summary, validate, ENFORCED[rule.level], SETTINGS, url=rule.url)


def _of_other_rules(level: Level, findings: Callable[[Any], list[Finding]]) -> crossguard.Policy:
    own = {r.id: r.level for r in rules()}

    def validate(args: crossguard.ResourceValidationArgs, report: crossguard.ReportViolation) -> None:
        if args.resource_type == ENVIRONMENT:
            for f in findings(plain(args.props)):
                if f.level is level and own.get(f.id) is not level and not f.accepted:
                    report(f"[{f.id}] {f.sentence()}", args.urn)

    return crossguard.ResourceValidationPolicy(*OTHERWISE[level], validate, ENFORCED[level])


def _over_stack(rule: Rule, findings: Callable[[Any], list[Finding]]) -> crossguard.Policy:
    def validate(args: crossguard.StackValidationArgs, report: crossguard.ReportViolation) -> None:
        urns = {_path(r): r.urn for r in args.resources}
        for finding in _violations(rule, findings([_declared(r) for r in args.resources]), args.get_config()):
            report(finding.sentence(), urns[finding.path.split(": ", 1)[0]])

    return crossguard.StackValidationPolicy(rule.id, rule.summary, validate, ENFORCED[rule.level], SETTINGS, url=rule.url)


def _declared(resource: crossguard.PolicyResource) -> Declared:
    parent = resource.parent.urn if resource.parent else ""
    return Declared(_path(resource), plain(resource.props), resource.resource_type, resource.urn, _provider(resource.provider), parent)


def _provider(provider: crossguard.PolicyProviderResource | None) -> str:
    """A component's is not told, and its parts have theirs; the engine's default ones are `default` or `default_` and a version."""
    if provider is None:
        return _COMPUTED
    if not re.fullmatch(r"default(_\d.*)?", provider.name):
        return provider.urn
    package = provider.resource_type.rpartition(":")[2]
    return default(f"{package}:", {f"{package}:{key}" for key in provider.props})


def _path(resource: crossguard.PolicyResource) -> str:
    return f"{resource.resource_type.rsplit(':', 1)[1]} {resource.name}"


def _violations(rule: Rule, findings: list[Finding], config: Mapping[str, Any]) -> list[Finding]:
    """A rule's findings of its own level; an error that the stack file accepts counts where the pack refuses that."""
    refuse = bool(config.get(REFUSE_ACCEPTED))
    own = [f for f in findings if f.id == rule.id]
    return [f for f in own if (refuse if f.accepted else f.level is rule.level)]


def _of_environment(inputs: Mapping[str, Any]) -> list[Finding]:
    return evaluate(inputs.get("spec"), project_folder(), StackContext.of_dict(inputs.get("stack") or {})).findings


def _remembered(findings: Callable[[Any], list[Finding]]) -> Callable[[Any], list[Finding]]:
    """The same, once for the same input: each rule asks for all findings."""
    known: dict[str, list[Finding]] = {}

    def remembered(given: Any) -> list[Finding]:
        key = json.dumps(given, default=repr, sort_keys=True)
        if key not in known:
            known[key] = findings(given)
        return known[key]

    return remembered


def plain(value: Any) -> Any:
    """The engine's values as data, with a word for what only the deployment knows."""
    if isinstance(value, Mapping):
        return {key: _at(value, key) for key in value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_at(value, i) for i in range(len(value))]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _at(container: Any, key: Any) -> Any:
    try:
        return plain(container[key])
    except UnknownValueError:
        return _COMPUTED
