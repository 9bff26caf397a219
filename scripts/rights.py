"""IAM policies for the identity that deploys and for the one that previews, from rights.yaml; blocks of docs/deployer-rights.md and the tutorial."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from disagg_serving.recording.graph import Graph
from disagg_serving.resources.iam import CLUSTER_POLICIES, NODE_POLICIES, managed_policy

from scripts.reference import table

TABLE = Path(__file__).with_name("rights.yaml")
LIMIT = 6144
"""Characters of a managed policy without white space (IAM and AWS STS quotas)."""
WRITES = ("create", "update", "delete")
EXAMPLE = {
    "name": "dev", "account": "123456789012", "region": "us-east-1", "state": "example-123456789012-pulumi", "alias": "disagg-serving",
    "weights": "example-123456789012-weights", "zone": "Z0123456789EXAMPLE",
}  # fmt: skip
"""What the printed documents are filled in with; names that the tutorial uses."""


@cache
def rights() -> dict[str, Any]:
    """The table."""
    data: dict[str, Any] = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return data


def made(graph: Graph) -> Counter[str]:
    """AWS resources of a recorded program by type, with those that components of pulumi-eks make inside."""
    found = Counter(r.type for r in graph.resources.values() if r.type.startswith("aws:"))
    for resource in graph.resources.values():
        found.update(rights()["inside"].get(resource.type, {}))
        entries = len(resource.inputs.get("accessEntries") or ()) if resource.type in rights()["inside"] else 0
        found.update({"aws:eks/accessEntry:AccessEntry": entries, "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": entries})
    return +found


def statement_of(action: str) -> str:
    """The id of the statement that an action belongs into. Raises KeyError for an action that none takes."""
    for sid, one in rights()["statements"].items():
        if any(action == named or (named.endswith(":") and action.startswith(named)) for named in one["of"]):
            return str(sid)
    raise KeyError(action)


def document(actions: Iterable[str], state: Iterable[str], values: Mapping[str, str] = EXAMPLE) -> dict[str, Any]:
    """A policy that allows actions on what an environment makes; `state` says which columns of the state's table come on top."""
    known = set(actions)
    grouped = {sid: sorted(a for a in known if statement_of(a) == sid) for sid in rights()["statements"]}
    parts = {**rights()["statements"], **rights()["state"]}
    grouped |= {sid: sorted(a for column in state for a in one[column]) for sid, one in rights()["state"].items()}
    statements = [_statement(sid, found, parts[sid], values) for sid, found in grouped.items() if found]
    return {"Version": "2012-10-17", "Statement": statements}


def _statement(sid: str, actions: list[str], part: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    made = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": _filled(part["resources"], values)}
    return {**made, "Condition": _filled(part["condition"], values)} if "condition" in part else made


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(v, values) for key, v in value.items()}
    if isinstance(value, list):
        return [_filled(v, values) for v in value]
    if value == "{policies}":
        return [managed_policy("aws", policy) for policy in (*CLUSTER_POLICIES, *NODE_POLICIES)]
    return value.format_map(values)


def deployer() -> dict[str, Any]:
    """What `pulumi up` and `pulumi destroy` need."""
    return document({a for rows in rights()["types"].values() for verb in rows.values() for a in verb}, ("read", "write"))


def previewer() -> dict[str, Any]:
    """What `pulumi preview` needs, with `--refresh` too."""
    return document({a for rows in rights()["types"].values() for a in rows["read"]}, ("read",))


def length(policy: Mapping[str, Any]) -> int:
    """Characters as IAM counts them."""
    return len(json.dumps(policy, separators=(",", ":")))


def printed(policy: Mapping[str, Any]) -> list[str]:
    """A fenced block: short lists on one line each, actions one below the other."""
    body = json.dumps(policy, indent=2)
    return ["```json", *body.split("\n"), "```", "", f"{length(policy):,} of the {LIMIT:,} characters that a managed policy may have."]


def actions_by_type() -> list[str]:
    """The table of docs/deployer-rights.md."""
    rows = [
        (f"`{kind.rpartition(':')[0]}`", _codes(verbs["read"]), _codes({a for w in WRITES for a in verbs[w]} - set(verbs["read"])))
        for kind, verbs in rights()["types"].items()
    ]
    return table(("resource of pulumi-aws", "reads", "creates, changes, deletes"), rows)


def roles(*graphs: Graph) -> list[str]:
    """Every IAM role that recorded programs declare, and the one that pulumi-eks makes: who assumes it, and what it may."""
    rows: dict[str, tuple[str, str, str, str]] = {}
    for graph in graphs:
        (environment,) = [r.name for r in graph.of_type("disagg-serving:index:Environment")]
        for role in graph.of_type("aws:iam/role:Role"):
            trust = json.loads(role.inputs["assumeRolePolicy"])["Statement"][0]["Principal"]["Service"]
            attached = [a for a in graph.of_type("aws:iam/rolePolicyAttachment:RolePolicyAttachment") if a.name.startswith(f"{role.name}-")]
            own = [p for p in graph.of_type("aws:iam/rolePolicy:RolePolicy") if _same(p.name, role.name)]
            allowed = {a for p in own for one in json.loads(p.inputs["policy"])["Statement"] for a in one["Action"]}
            full = role.inputs.get("name") or f"{role.inputs.get('namePrefix') or role.name + '-'}..."
            called = re.sub("-.+-weights-", "-MODEL-weights-", full.replace(f"{environment}-", "NAME-", 1))
            called = re.sub("-[a-z]+(-[a-z]+)+-[0-9]-gpu-node", "-REGION-gpu-node", called)
            policies = ", ".join(sorted(a.inputs["policyArn"].rpartition("/")[2] for a in attached))
            before = rows.get(called)
            if before is None or len(_codes(allowed)) > len(before[3]):
                rows[called] = (f"`{called}`", trust, policies, _codes(allowed))
    built_in = "`NAME-nodeRole-role-...`, by pulumi-eks, of the nodes of the built-in pools"
    last = (built_in, "ec2.amazonaws.com", ", ".join(sorted(NODE_POLICIES)), "")
    return table(("role", "assumed by", "AWS's policies", "own policy allows"), [*(rows[called] for called in sorted(rows)), last])


def _same(policy: str, role: str) -> bool:
    """Whether a policy is a role's own, by the names of both resources; that of node tags is the cluster's."""
    return policy == role or policy.replace("-node-tags", "-cluster") == role


def _codes(actions: Iterable[str]) -> str:
    return ", ".join(f"`{a}`" for a in sorted(actions))
