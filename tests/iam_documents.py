"""The IAM documents that recorded programs declare, and an evaluator of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from disagg_serving.recording.graph import Graph
from factories import STACKS, aggregated, environment, existing_cluster, model
from recording import environment_graph, stack_graph

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
REVISION, OLDER = "0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98"
BUCKET = "example-weights"


def in_s3(
    name: str, prefix: str | None = None, *, revision: str | None = REVISION, mirror: bool = True, repository: str | None = None, **s3: Any
) -> dict[str, Any]:
    """A model whose weights a Job copies to the bucket, or with `mirror=False` somebody else."""
    place = {"bucket": BUCKET, **({"prefix": prefix} if prefix else {}), **s3}
    return aggregated(name=name, model="gpt-oss-120b", repository=repository, weights={"revision": revision, "mirror": mirror, "s3": place})


SHARED = ("models/a", "models/a-2", "models/b/weights")
"""Base folders of three models in one bucket; the first is the start of the second's name, but not its parent."""
LONG = ("a-model-whose-name-is-longer-than-roles-allow-1", "a-model-whose-name-is-longer-than-roles-allow-2")
"""Names of models that differ only where the names of roles are cut."""

ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "key": environment(in_s3("m", create=True, kmsKeyArn=KEY)),
    "node tags": environment(model(), nodePools={"tags": {"team": "ml"}}),
    "one bucket": environment(*(in_s3(f"m{i}", prefix) for i, prefix in enumerate(SHARED))),
    "one base": environment(in_s3("old", "models/a", revision=OLDER), in_s3("new", "models/a")),
    "there already": environment(in_s3("m", "models/a", mirror=False)),
    "long names": environment(*(in_s3(name, create=True) for name in LONG)),
    "GovCloud": environment(
        in_s3("m", create=True),
        cluster={"partition": "aws-us-gov", "endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}},
        network={"zones": ["us-gov-west-1a", "us-gov-west-1b"]},
        nodePools={"tags": {"team": "ml"}},
    ),
    "cluster by name": existing_cluster(in_s3("m"), kubeconfig=None, name="theirs", nodeRole=None),
}
CASES = [*STACKS, *ENVIRONMENTS]

TRUST, RIGHTS, BUCKETS = "aws:iam/role:Role", "aws:iam/rolePolicy:RolePolicy", "aws:s3/bucketPolicy:BucketPolicy"
ATTACHMENTS = ("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "aws:eks/accessPolicyAssociation:AccessPolicyAssociation")


@dataclass(frozen=True)
class Document:
    """A policy document, and the resource that carries it."""

    type: str
    name: str
    body: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.type.rsplit(':', 1)[1]} {self.name}"


@cache
def graph_of(case: str) -> Graph:
    """The recorded program of a stack or environment."""
    return environment_graph(ENVIRONMENTS[case]) if case in ENVIRONMENTS else stack_graph(case)


@cache
def documents(case: str) -> tuple[Document, ...]:
    """All policy documents of a stack or environment: whatever text has statements, in whichever input of whichever resource."""
    return tuple(
        Document(r.type, r.name, json.loads(text)) for r in graph_of(case).resources.values() for text in texts(r.inputs) if '"Statement"' in text
    )


def texts(value: Any) -> list[str]:
    """All texts in plain data."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return [text for v in inner for text in texts(v)]


def rights(case: str, name: str) -> dict[str, Any]:
    """The document of a role's own policy."""
    (found,) = [d.body for d in documents(case) if (d.type, d.name) == (RIGHTS, name)]
    return found


def allowing(case: str) -> Iterable[tuple[Document, dict[str, Any]]]:
    """Every statement that allows something to a role."""
    return [(d, s) for d in documents(case) if d.type != TRUST for s in d.body["Statement"] if s["Effect"] == "Allow"]


# ---- an evaluator of policies --------------------------------------------------------------------------------------------------------------


def matches(pattern: str, text: str) -> bool:
    """IAM's wildcards: * is any text, slashes included, and ? one character; brackets mean themselves."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def applies(statement: dict[str, Any], action: str, resource: str, context: dict[str, str]) -> bool:
    """Whether a statement is about a request. Actions are compared as IAM does, without case."""
    operators: dict[str, Callable[[str, str], bool]] = {
        "StringEquals": lambda wanted, found: wanted == found,
        "StringLike": matches,
        "Bool": lambda wanted, found: wanted == found,
        "ArnEquals": matches,
        "ForAnyValue:StringEquals": lambda wanted, found: wanted == found,
    }
    conditions = [(operators[o], key, listed(wanted)) for o, c in statement.get("Condition", {}).items() for key, wanted in c.items()]
    return (
        any(matches(a.lower(), action.lower()) for a in listed(statement["Action"]))
        and any(matches(r, resource) for r in listed(statement["Resource"]))
        and all(key in context and any(holds(w, context[key]) for w in wanted) for holds, key, wanted in conditions)
    )


CONTEXT = {
    "prefix": "s3:prefix",
    "tls": "aws:SecureTransport",
    "region": "aws:RequestedRegion",
    "passed_to": "iam:PassedToService",
    "policy": "iam:PolicyARN",
    "service": "iam:AWSServiceName",
    "alias": "kms:ResourceAliases",
}
"""Condition keys by the words that tests give them."""


def permits(document: dict[str, Any], action: str, resource: str, **context: str) -> bool:
    """What IAM decides by one document: allowed by a statement, and denied by none. The context has the words of CONTEXT."""
    known = {CONTEXT[word]: value for word, value in context.items()}
    effects = {s["Effect"] for s in document["Statement"] if applies(s, action, resource, known)}
    return effects == {"Allow"}


def listed(value: str | list[str]) -> list[str]:
    """IAM takes one text for a list of one."""
    return [value] if isinstance(value, str) else value
