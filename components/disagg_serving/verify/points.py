"""A point: one thing that was compared, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..records import Record


class Status(StrEnum):
    """What came of a point: `unknown` could not be seen, and is never taken for `ok`."""

    FAILED = "failed"
    UNKNOWN = "unknown"
    OK = "ok"


_ORDER = list(Status)
MEANING = {
    "kubernetes-version": "the API server has the minor version of the stack file",
    "lws-version": "the LeaderWorkerSet controller has the version of the stack file",
    "lws-ready": "the LeaderWorkerSet controller runs",
    "object": "an object that the project makes is there, with the fields that it generates",
    "weights-mirror": "the Job that copies weights to S3 is done",
    "set-replicas": "a LeaderWorkerSet wants as many engines as the stack file, or a number between the bounds of autoscaling",
    "scaled-object": "KEDA reads the signals of a scaled role and may change its number of engines",
    "set-size": "its groups have as many pods",
    "set-rollout": "all its engines have its newest template",
    "group-whole": "all pods of an engine are there and on nodes; half a group holds GPUs and serves nothing",
    "group-ready": "all pods of an engine are ready",
    "pod-image": "containers run the generated images",
    "pod-args": "containers run the generated command lines",
    "pod-env": "containers have the generated environment variables",
    "pod-spec": "everything else of a pod is as generated: devices, probes, volumes, labels, tolerations",
    "pod-credentials": "a pod that streams weights from S3 was given credentials for it",
    "pod-pool": "a pod is on a node of its role's pool",
    "pool-nodes": "the pods of a pool are on as many nodes as planned; between the least and the most where a role is scaled",
    "node-ready": "a node is ready",
    "node-type": "a node has the instance type of its pool",
    "node-zone": "a node is in the zone of its pool",
    "node-capacity": "a node is on demand, spot or reserved as its pool",
    "node-gpu": "a node offers the GPUs of its instance type",
    "node-efa": "a node offers the EFA devices of its instance type",
    "router-ready": "endpoint picker and Envoy run",
    "router-image": "they run the images of the pinned release",
    "router-config": "they have read the generated configuration",
    "router-address": "the load balancer has a name",
    "service-endpoints": "a Service leads to exactly the ready pods that answer",
    "engine-version": "vLLM is the version of the catalogue",
    "nixl-backend": "NIXL has started the backend that the command line names",
    "kv-transfers": "a decode pod has received KV cache",
    "kv-failures": "no KV transfer has failed",
    "prefill-used": "prompts are calculated by prefill pods",
    "decode-local": "decode pods do not calculate prompts themselves",
    "weights-cache": "the node's folder for weights can be written",
    "canary-answer": "one request through the router is answered",
    "canary-split": "that request was calculated by prefill and its KV cache moved to decode",
}
"""Every point by its id, and what it holds when it is ok."""


@dataclass(frozen=True)
class Point(Record):
    """One comparison. `subject` is what it is about, `fix` what to do where it failed or could not be seen."""

    id: str
    status: Status
    subject: str
    expected: str
    found: str
    fix: str = ""


def ok(name: str, subject: str, expected: object, found: object = "") -> Point:
    """What was found is what was expected."""
    return Point(name, Status.OK, subject, str(expected), str(found) or str(expected))


def failed(name: str, subject: str, expected: object, found: object, fix: str) -> Point:
    """It is something else."""
    return Point(name, Status.FAILED, subject, str(expected), str(found), fix)


def unknown(name: str, subject: str, expected: object, why: object, fix: str = "") -> Point:
    """It could not be seen, or a failed point elsewhere leaves it open."""
    return Point(name, Status.UNKNOWN, subject, str(expected), str(why), fix)


def compare(name: str, subject: str, expected: object, found: object, fix: str) -> Point:
    """Ok when both are equal as text."""
    return ok(name, subject, expected) if str(expected) == str(found) else failed(name, subject, expected, found, fix)


def sort_points(points: Iterable[Point]) -> list[Point]:
    """Failed, unknown, ok; within these in the order of the checks, subjects sorted."""
    order = list(MEANING)
    return sorted(points, key=lambda p: (_ORDER.index(p.status), order.index(p.id), p.subject))
