"""The checks: `registry` holds the list, the other files the rules by what they are about."""

from __future__ import annotations

from .registry import Fault, Rule, Stage, Subject, rule, rules, run_stage

__all__ = ["Fault", "Rule", "Stage", "Subject", "rule", "rules", "run_stage"]
