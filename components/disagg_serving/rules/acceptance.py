"""Errors that a stack file accepts, each with a reason: they become warnings and say why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..errors import Finding, Level
from . import Stage, rules


def accept(findings: Iterable[Finding], reasons: Mapping[str, str]) -> list[Finding]:
    """The findings, those of accepted rules as warnings with the reason."""
    if not reasons:
        return list(findings)
    firm = {r.id for r in rules() if r.firm}

    def lowered(finding: Finding) -> Finding:
        if finding.level is not Level.ERROR or finding.id not in reasons or finding.id in firm:
            return finding
        return replace(finding, level=Level.WARNING, accepted=reasons[finding.id])

    return [lowered(f) for f in findings]


def unused_acceptances(findings: Sequence[Finding], reasons: Mapping[str, str]) -> list[Finding]:
    """What is accepted and not there: a reason that has served its purpose hides the next error of its kind."""
    if not reasons:
        return []
    found = {f.id for f in findings if f.accepted}
    milder = {f.id for f in findings if f.level is not Level.ERROR} | {r.id for r in rules() if r.level is not Level.ERROR}
    known = {r.id for r in rules() if r.stage in {Stage.FORM, Stage.LAYOUT}}  # the others may not have been asked
    why = {True: "the rule only warns here, and only errors can be accepted", False: "no error of this rule is there"}
    return [
        Finding("accepted", Level.INFO, place, f"accepts nothing: {why[rule_id in milder]}").with_fix(None)
        for rule_id in reasons
        if rule_id in known - found
        for place in [f"accept.{rule_id}"]
    ]
