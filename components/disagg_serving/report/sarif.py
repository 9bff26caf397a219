"""Findings as SARIF 2.1.0 (OASIS), which code hosts show at the line of the file that they are about."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..errors import Finding, Level
from ..rules import rules
from ..rules.form import FORM_CHECKS
from ..yaml_io import Span, real
from .spots import Spots

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
BASE = "%SRCROOT%"
"""The name that code hosts give to the root of the checkout; paths are relative to it, so that none says where the checkout was."""
LEVELS = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
SEVERITIES = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "recommendation"}


def render_sarif(findings: Sequence[Finding], file: Path | None, *, version: str, bare: bool = False) -> str:
    """The findings of this version about one file: a stack file or, with `bare`, an environment; None where it is not known which is meant."""
    descriptors = _descriptors(findings)
    index = {d["id"]: i for i, d in enumerate(descriptors)}
    artifact = {"uri": _relative(file), "uriBaseId": BASE} if file else None
    spots = Spots(file, bare=bare)
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "disagg", "fullName": "disagg-serving check", "version": version, "rules": descriptors}},
        "invocations": [{"executionSuccessful": True}],
        "originalUriBaseIds": {BASE: {"description": {"text": "the root of the repository, or the folder of the file where there is none"}}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(f, index[f.id], artifact, spots.of(f)) for f in findings],
    }
    if artifact:
        run["artifacts"] = [{"location": artifact, "sourceLanguage": "yaml"}]
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=False)


def _result(finding: Finding, index: int, artifact: dict[str, str] | None, span: Span) -> dict[str, Any]:
    region: dict[str, int] = {"startLine": span.line, "startColumn": span.column}
    if span.end:
        region |= {"endLine": span.end[0], "endColumn": span.end[1]}
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": artifact, "region": region}} if artifact else {}
    if finding.path:
        location["logicalLocations"] = [{"fullyQualifiedName": finding.path}]
    identity = f"{finding.id}\0{finding.path}\0{finding.message}"
    return {
        "ruleId": finding.id,
        "ruleIndex": index,
        "level": LEVELS[finding.level],
        "message": {"text": _plain(finding.sentence())},
        "locations": [location] if location else [],
        # lines move when a file is edited, the place in the environment does not
        "partialFingerprints": {"finding/v1": hashlib.sha256(identity.encode()).hexdigest()},
    }


def _descriptors(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """All rules, and those checks of the form that found something."""
    found = {f.id for f in findings}
    known = [(r.id, r.level, r.summary, r.reference) for r in rules()]
    registered = {r[0] for r in known}
    known += [(i, Level.ERROR, summary, "") for i, summary in FORM_CHECKS.items() if i in found - registered]
    return [_descriptor(*r) for r in sorted(known)]


def _descriptor(rule_id: str, level: Level, summary: str, reference: str) -> dict[str, Any]:
    source = f"\n\nReference: {reference}" if reference else ""
    return {
        "id": rule_id,
        "shortDescription": {"text": _plain(summary)},
        "fullDescription": {"text": _plain(summary + source)},
        "help": {"text": _plain(f"{summary}{source}\n\n`disagg explain {rule_id}` says the same.")},
        "defaultConfiguration": {"level": LEVELS[level]},
        "properties": {"problem.severity": SEVERITIES[level], "precision": "very-high", "tags": ["disagg-serving"]},
    }


def _plain(text: str) -> str:
    """Without SARIF's links inside messages (section 3.11.6), which a stack file could otherwise place."""
    return text.replace("](", "] (")


def _relative(file: Path) -> str:
    """The file from the root of its repository, as a URI; outside of one from its own folder."""
    path = real(file)
    root = next((folder for folder in path.parents if (folder / ".git").exists()), path.parent)
    return quote(path.relative_to(root).as_posix())
