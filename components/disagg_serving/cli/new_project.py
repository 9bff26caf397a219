"""The files of a new project and stack, which `disagg init` and `disagg import` write."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml

from .. import __version__
from ..errors import ToolError
from ..pins import KUBERNETES
from ..schemas import json_schema
from ..spec.stack_file import ENVIRONMENT_KEY, NAMESPACE, Project, find_project
from . import answers

_LIBRARY = "disagg-serving"
SCHEMA = "stack.schema.json"
_PROGRAM = '''"""The program of every stack: `pulumi up` and `disagg plan` both run this file."""

from disagg_serving.resources import deploy

deploy()
'''
_PROJECT = f"""name: {NAMESPACE}
description: Disaggregated LLM serving on EKS Auto Mode, planned and checked before any GPU is bought
runtime:
  name: python
  options:
    toolchain: pip
    virtualenv: .venv
stackConfigDir: stacks
requiredPulumiVersion: ">=3.260.0"
"""
_REASONS = {
    "cluster": "administrators and who may reach the API; without endpoint.publicAccessCidrs the whole internet may try to log in",
    "network": "a VPC is made; EFA does not cross zones, so all GPU nodes are in the first one",
    "models": "everything that is not said has a default that is calculated: `disagg schema` describes it",
}


def project_files() -> dict[Path, str]:
    """Program, project and requirements of a new folder, and the schema for editors."""
    here = Path.cwd()
    return {
        here / "Pulumi.yaml": _PROJECT,
        here / "__main__.py": _PROGRAM,
        here / "requirements.txt": requirements(_installed_from()),
        here / ".gitignore": ".venv/\n__pycache__/\n",
        here / SCHEMA: json.dumps(json_schema("stack"), indent=1) + "\n",
    }


def requirements(source: Mapping[str, Any] | None) -> str:
    """The requirement of this library as it runs here; `source` is its direct_url.json (PEP 610), None when it came from an index."""
    if source is None:
        return f"{_LIBRARY}=={__version__}\n"
    url, parts = str(source["url"]), []
    vcs = source.get("vcs_info")
    if vcs:
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    hashes = (source.get("archive_info") or {}).get("hashes") or {}
    if "sha256" in hashes:
        parts.append(f"sha256={hashes['sha256']}")
    if source.get("subdirectory"):
        parts.append(f"subdirectory={source['subdirectory']}")
    line = f"{_LIBRARY} @ {_without_password(url)}{'#' if parts else ''}{'&'.join(parts)}\n"
    return f"# as it is installed here; elsewhere this path may hold something else or nothing\n{line}" if url.startswith("file:") else line


def _installed_from() -> Mapping[str, Any] | None:
    """Where the running library was installed from, None for an index."""
    try:
        text = distribution(_LIBRARY).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    found: Mapping[str, Any] | None = json.loads(text) if text else None
    return found


def _without_password(url: str) -> str:
    """The address without a password or token; a user's name as for ssh, and variables that pip fills in, stay."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at or re.fullmatch(r"(\$\{\w+\}:?)+", user) or (parts.scheme.endswith("ssh") and ":" not in user):
        return url
    return urlunsplit(parts._replace(netloc=host))


def schema_of(target: Path, project: Project | None) -> str | None:
    """Path of the stack schema from a stack file, None where the project has none."""
    root = project.root if project else Path.cwd()
    for place in (root / SCHEMA, root / "docs/schema" / SCHEMA):
        if project is None or place.is_file():
            return os.path.relpath(place, target.parent)
    return None


def stack_text(region: str, environment: dict[str, Any], schema: str | None, reason: str) -> str:
    """A stack file with comments."""
    lines = [f"# yaml-language-server: $schema={schema}"] if schema else []
    lines += [f"# {reason}"] if reason else []
    lines += ["config:", f"  aws:region: {_flow(region)}", f"  {ENVIRONMENT_KEY}:"]
    if "cluster" not in environment:
        lines += [
            f"    # cluster: {_REASONS['cluster']}",
            f'    # cluster: {{kubernetesVersion: "{KUBERNETES.version}", adminRoleArns: ["arn:aws:iam::..."]}}',
        ]
    for key, value in environment.items():
        if key == "models":
            lines += [f"    # {_REASONS[key]}", "    models:", *_model(value[0])]
        else:
            lines += [f"    # {_REASONS[key]}"] if key in _REASONS else []
            lines.append(f"    {key}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _model(model: dict[str, Any]) -> list[str]:
    comments = {
        "model": "`disagg catalog models`, or the path of a config.json",
        "maxModelLen": "longest prompt and answer, in tokens; the KV cache has to hold it",
        "prefill": "reads prompts; `disagg plan` shows which of the two is the bottleneck once rates are measured",
        "decode": "writes answers from the KV that NIXL brings over EFA",
        "server": "one role does both",
        "workload": "means; used for planning alone",
    }
    lines = []
    for i, (key, value) in enumerate(model.items()):
        comment = f" # {comments[key]}" if key in comments else ""
        lines.append(f"      {'- ' if i == 0 else '  '}{key}: {_flow(value)}{comment}")
    return lines


def check_command(stack: str, *, new: bool) -> str:
    """What to do next."""
    first = "install once: python3 -m venv .venv && .venv/bin/pip install -r requirements.txt\n" if new else ""
    return f"{first}next: disagg plan {stack}"


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True).removesuffix("\n...\n").strip()


def own_project() -> Project | None:
    """The project here, if any."""
    try:
        return find_project(Path.cwd())
    except ToolError:
        return None


def target_of(stack: str, project: Project | None, *, overwrite: bool = False) -> Path:
    """The stack's file. Raises ToolError where one must not be written."""
    answers.stack_name(stack)
    target = (project.stack_dir if project else Path.cwd() / "stacks") / f"Pulumi.{stack}.yaml"
    if target.exists() and not overwrite:
        raise ToolError(f"{shown(target)} exists and is left as it is; choose another name, or edit it")
    return target


def write_new(files: Mapping[Path, str]) -> None:
    """Write new files; none is written when one exists."""
    there = [shown(file) for file in files if file.exists()]
    if there:
        state = "exists and is left as it is" if len(there) == 1 else "exist and are left as they are"
        raise ToolError(f"{', '.join(there)} {state}; start in an empty folder, or in a project")
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write(text)


def shown(path: Path) -> str:
    """A path as seen from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
