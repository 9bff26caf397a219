"""The checks: `registry` holds the list and `runner` runs it; `checks` has the rules by what they are about."""

from __future__ import annotations

from .registry import NO_STACK, Fault, Rule, StackContext, Stage, Subject, rule, rules, with_layouts
from .runner import check_objects, findings_of, run_stage

__all__ = [
    "NO_STACK",
    "Fault",
    "Rule",
    "StackContext",
    "Stage",
    "Subject",
    "check_objects",
    "findings_of",
    "rule",
    "rules",
    "run_stage",
    "with_layouts",
]
