"""The checks: `registry` holds the list, the other files the rules by what they are about."""

from __future__ import annotations

from .registry import NO_STACK, Fault, Rule, StackContext, Stage, Subject, check_objects, rule, rules, run_stage, with_layouts

__all__ = ["NO_STACK", "Fault", "Rule", "StackContext", "Stage", "Subject", "check_objects", "rule", "rules", "run_stage", "with_layouts"]
