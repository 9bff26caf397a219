"""What the engines themselves say: version, NIXL's backend, transfers, who calculates prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..manifests.engine import NODE_CACHE_PATH, uses_node_cache
from ..planning.connector import BACKENDS
from ..planning.shapes import Served
from .metrics import NOTHING, Metrics, read_metrics
from .points import Point, compare, failed, ok, unknown
from .snapshot import Object, Unread
from .view import Engine, View, is_true, unknown_unread

BACKEND = re.compile(r"Backend (\w+) was instantiated")
"""NIXL's own line at the start of an engine, in 1.3.1 and 1.5.0."""
REFUSED = re.compile(r"Permission denied|Read-only file system|No space left on device")
LOCAL_SHARE = 0.1
"""Part of the prompt tokens that decode may calculate: the last token of each prompt is its own in any case and does not count."""
NO_TRAFFIC = "no request has come through so far"
ASK = "send requests, or let `--canary` send one"


@unknown_unread("engine-version", "all engines", "as in the catalogue")
def check(view: View) -> Iterator[Point]:
    """The points of each engine's pods and of each model."""
    running = list(view.running())
    for engine, number, pod in running:
        yield from _pod(view, engine, number, pod)
    for served in view.layout.served:
        if served.spec.disaggregated:
            yield from _split(view, served, [(e, p) for e, n, p in running if n == 0 and e.group.served is served])


def _pod(view: View, engine: Engine, number: int, pod: Object) -> Iterator[Point]:
    group, name = engine.group, pod["metadata"]["name"]
    subject, answers = f"{group.namespace}/{name}", view.answers(group.namespace, name)
    if number == 0:
        wanted = group.served.engine.version
        if isinstance(answers.version, Unread):
            yield unknown("engine-version", subject, wanted, answers.version.reason)
        else:
            # a build's suffix, such as +cu130, is not part of the release
            yield compare(
                "engine-version", subject, wanted, answers.version.partition("+")[0], "the image is not what its tag says: give imageDigest"
            )
    if group.served.spec.disaggregated:
        yield _backend(subject, answers.log)
    if uses_node_cache(group.served):
        yield _node_cache(subject, answers.log, ready=is_true(pod, "Ready"))


def _backend(subject: str, log: str | Unread) -> Point:
    wanted = ", ".join(BACKENDS)
    if isinstance(log, Unread):
        return unknown("nixl-backend", subject, wanted, log.reason)
    found = ", ".join(dict.fromkeys(BACKEND.findall(log)))
    if not found:
        return unknown(
            "nixl-backend", subject, wanted, "no such line at the beginning of the log: still loading, or rotated away", "look at it after a restart"
        )
    return compare("nixl-backend", subject, wanted, found, "the image lacks libfabric, or the pod has no EFA device: KV would go over TCP")


def _node_cache(subject: str, log: str | Unread, *, ready: bool) -> Point:
    wanted = "can be written"
    if ready:
        return ok("weights-cache", subject, wanted, "the engine has loaded its weights through it")
    if isinstance(log, Unread):
        return unknown("weights-cache", subject, wanted, log.reason)
    refused = [line.strip() for line in log.splitlines() if NODE_CACHE_PATH in line and REFUSED.search(line)]
    if refused:
        fix = "SELinux or the mount refuses it: set weights.cache: pod"
        return failed("weights-cache", subject, wanted, f"the log says: {refused[-1][:200]}", fix)
    return unknown("weights-cache", subject, wanted, "the engine is not ready yet, and its log complains of nothing")


def metrics_of(view: View, engine: Engine) -> Metrics | Unread:
    """The metrics of an engine's leader, or why there are none."""
    answer = view.answers(engine.group.namespace, engine.pods[0]).metrics
    if isinstance(answer, Unread):
        return answer
    try:
        return read_metrics(answer)
    except (ValueError, KeyError) as problem:
        return Unread(f"its /metrics are not vLLM's: {problem}")


def _split(view: View, served: Served, leaders: list[tuple[Engine, Object]]) -> Iterator[Point]:
    seen = {engine: metrics_of(view, engine) for engine, _ in leaders}
    prefill = [m for e, m in seen.items() if e.group.role == "prefill"]
    decode = {e: m for e, m in seen.items() if e.group.role == "decode"}
    # who moves KV counts the transfers
    movers = decode if served.spec.connector.mode == "pull" else {e: m for e, m in seen.items() if e.group.role == "prefill"}
    unread = [m for m in seen.values() if isinstance(m, Unread)]
    used = _prefill_used(served, prefill, list(decode.values()), unread)
    yield used
    for engine, found in movers.items():
        yield from _transfers(engine, found, used)
    routing = served.spec.gateway.routing.disaggregation
    if routing == "always" or not served.spec.gateway.enabled:  # otherwise short prompts are decode's own
        yield _decode_local(served, list(decode.values()), used)


def _sum(found: list[Metrics | Unread]) -> Metrics:
    return sum((m for m in found if isinstance(m, Metrics)), NOTHING)


def _prefill_used(served: Served, prefill: list[Metrics | Unread], decode: list[Metrics | Unread], unread: list[Unread]) -> Point:
    name, subject, wanted = "prefill-used", served.spec.name, "prompt tokens on prefill pods"
    computed, received = _sum(prefill).prompt_tokens, _sum(decode).prompt_tokens
    if computed:
        return ok(name, subject, wanted, f"{computed:,.0f} prompt tokens")
    if unread:
        return unknown(name, subject, wanted, unread[0].reason)
    if not received:
        return unknown(name, subject, wanted, NO_TRAFFIC, ASK)
    fix = "the router sends no request to prefill: see the endpoint picker's log, and whether prefill pods carry its labels"
    return failed(name, subject, wanted, f"0, while decode pods took prompts of {received:,.0f} tokens", fix)


def _transfers(engine: Engine, found: Metrics | Unread, used: Point) -> Iterator[Point]:
    name, subject = "kv-transfers", engine.subject
    if isinstance(found, Unread):
        yield unknown(name, subject, "more than 0", found.reason)
        yield unknown("kv-failures", subject, "0", found.reason)
        return
    if found.transfers:
        yield ok(name, subject, "more than 0", f"{found.transfers:,.0f}")
    elif not found.prompt_tokens:
        yield unknown(name, subject, "more than 0", NO_TRAFFIC, ASK)
    elif used.status == "failed":
        yield unknown(name, subject, "more than 0", "prefill is not used: see prefill-used")
    else:
        fix = "it calculates prompts itself: see its log for NIXL, and the routing sidecar's"
        yield failed(name, subject, "more than 0", f"0, for prompts of {found.prompt_tokens:,.0f} tokens", fix)
    fix = "see the decode pod's log: a peer that went away, or versions or model strings that differ between the roles"
    yield compare("kv-failures", subject, "0", f"{found.failures:.0f}", fix)


def _decode_local(served: Served, decode: list[Metrics | Unread], used: Point) -> Point:
    name, subject, wanted = "decode-local", served.spec.name, f"at most {LOCAL_SHARE:.0%} of prompt tokens"
    if used.status != "ok":
        return unknown(name, subject, wanted, used.found)
    if unread := [m for m in decode if isinstance(m, Unread)]:
        return unknown(name, subject, wanted, unread[0].reason)
    total = _sum(decode)
    if not total.prompt_tokens:
        return unknown(name, subject, wanted, NO_TRAFFIC, ASK)
    share = max(0.0, total.local_tokens - total.answered) / total.prompt_tokens
    if share <= LOCAL_SHARE:
        return ok(name, subject, wanted, f"{share:.0%}")
    return failed(name, subject, wanted, f"{share:.0%}", "some requests reach decode without a prefill: see whether all prefill pods were ready")
