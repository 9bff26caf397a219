"""Rules about roles whose number of engines follows the load."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ...corrections import Correction
from ...errors import Level
from ...forecast.autoscaling import prompt_rate, ready_seconds
from ...forecast.balance import BalanceError, balance
from ...forecast.situation import situation_of
from ...phrases import say
from ...planning.scaling import at_most, scaled
from ...planning.shapes import Served
from ...spec import RoleSpec
from ...spec.serving import RoleName
from ..documents import KEDA, KUBERNETES, LLM_D
from ..registry import Fault, Stage, Subject, remove, rule, use

IN_CLUSTER = re.compile(r"^https?://[^./:]+\.(?P<namespace>[a-z0-9-]+)(\.svc(\..*)?)?(:\d+)?(/.*)?$")
"""The address of a Service, with its namespace."""
MANAGED = re.compile(r"^https?://aps-workspaces\.[^/]+\.amazonaws\.com")
"""Amazon Managed Service for Prometheus: only signed requests are answered (AWS: Signature Version 4; KEDA: TriggerAuthentication)."""
ITSELF = re.compile(r"^https?://(localhost|127\.[0-9.]+)([:/]|$)")
UNEVEN = 2.0
"""How far prefill and decode may drift apart between fewest and most engines, as a factor."""


@rule(
    "autoscaling-bounds",
    Level.ERROR,
    Stage.FORM,
    f"{KEDA}reference/scaledobject-spec/ and docs/autoscaling.md",
    firm=True,
    blocks_layout=True,
)
def autoscaling_bounds(s: Subject) -> Iterator[Fault]:
    """A scaled role has one engine at least and no more than its most, and no fixed number beside them."""
    for _served, _name, role, path in s.roles():
        bounds, place = role.autoscaling, f"{path}.autoscaling"
        if bounds is None:
            continue
        if "replicas" in role.model_fields_set:
            message = "stands beside autoscaling, which chooses the number"
            kept: Correction = {f"{path}.replicas": None, f"{place}.minReplicaCount": role.replicas}
            yield Fault(f"{path}.replicas", message, role.replicas, "without it", ways=[[kept, *remove(f"{path}.replicas")]])
        if bounds.min_replica_count == 0:
            message = (
                "would end the last engine: then nobody measures load or holds requests while a node starts and the model loads for many minutes"
            )
            ways = [use(f"{place}.minReplicaCount", 1)]
            yield Fault(f"{place}.minReplicaCount", message, 0, "1 or more", "destroy the stack while it is not needed", ways=ways)
        if bounds.max_replica_count < max(1, bounds.min_replica_count):
            least = max(1, bounds.min_replica_count)
            message = say("is less than {minReplicaCount} {}", least) if bounds.min_replica_count else "leaves no engine"
            ways = [use(f"{place}.maxReplicaCount", least)]
            yield Fault(f"{place}.maxReplicaCount", message, bounds.max_replica_count, f"{least} or more", ways=ways)


@rule("autoscaling-prometheus", Level.ERROR, Stage.FORM, f"{KEDA}scalers/prometheus/", firm=True)
def autoscaling_prometheus(s: Subject) -> Iterator[Fault]:
    """KEDA is told which Prometheus to ask, and the network policies let it read the metrics of engines and routers."""
    if not any(role.autoscaling for _, _, role, _ in s.roles()):
        return
    address, policies, place = s.spec.autoscaling.prometheus_address, s.spec.network_policy, "autoscaling.prometheusAddress"
    if address is None:
        allowed = "http://prometheus-operated.monitoring.svc:9090, for example"
        yield Fault(place, "is required, since a role has autoscaling", None, allowed, "add it")
    elif MANAGED.match(address):
        message = "answers signed requests alone, and KEDA is given no identity to sign with: it gets 403, and no role is scaled"
        advice = "name a Prometheus in the cluster, or a proxy there that signs"
        yield Fault(place, message, address, "a Prometheus that answers without a signature", advice, Level.WARNING)
    elif ITSELF.match(address):
        yield Fault(
            place, "is KEDA's own pod, where no Prometheus runs", address, "the address of a Service", "name Prometheus' Service", Level.WARNING
        )
    elif (found := IN_CLUSTER.match(address)) and policies.enabled and found["namespace"] != policies.prometheus_namespace:
        namespace = found["namespace"]
        message = f"is in namespace {namespace}, and network policies admit only Prometheus of {policies.prometheus_namespace}"
        ways, advice = [use("networkPolicy.prometheusNamespace", namespace)], "leave it where another one scrapes for it"
        yield Fault(place, message, address, policies.prometheus_namespace, advice, Level.WARNING, ways)


@rule("autoscaling-signal", Level.ERROR, Stage.FORM, f"{LLM_D}56cb1218/guides/workload-autoscaling/keda-epp-token-aware/README.md", firm=True)
def autoscaling_signal(s: Subject) -> Iterator[Fault]:
    """Each threshold is of a signal that the role has: seconds of prompts need a measured rate and a router that counts."""
    for served, name, role, path in s.roles():
        if role.autoscaling is not None:
            yield from _signals(served, name, role, f"{path}.autoscaling")


def _signals(served: Served, name: RoleName, role: RoleSpec, place: str) -> Iterator[Fault]:
    given, seconds = role.autoscaling, f"{place}.backlogSeconds"
    if given is None:
        return
    if given.backlog_seconds is not None:
        if name == "decode":
            message = "is of prompts, which decode does not read"
            yield Fault(seconds, message, given.backlog_seconds, say("{kvCacheUsage}"), ways=[remove(seconds)])
        elif not role.measured_rates:
            message = "needs to know how many prompt tokens an engine reads in a second"
            advice = say("add {measuredRates} to the role, or use {waitingRequests}")
            yield Fault(seconds, message, given.backlog_seconds, say("with {measuredRates}"), advice, ways=[remove(seconds)])
        if not served.spec.gateway.enabled:
            message = "is counted by the router, and the gateway is off"
            allowed = say("{waitingRequests}, {kvCacheUsage}")
            yield Fault(seconds, message, given.backlog_seconds, allowed, "use one of these", ways=[remove(seconds)])
    if given.kv_cache_usage is not None and name == "prefill":
        message = "says little about prefill, which hands its KV on as soon as a prompt is read"
        ways, allowed = [remove(f"{place}.kvCacheUsage")], say("{backlogSeconds}, {waitingRequests}")
        yield Fault(f"{place}.kvCacheUsage", message, given.kv_cache_usage, allowed, "use one of these", Level.WARNING, ways)


@rule("autoscaling-pace", Level.INFO, Stage.LAYOUT, f"{KUBERNETES}tasks/run-application/horizontal-pod-autoscale/ and docs/autoscaling.md")
def autoscaling_pace(s: Subject) -> Iterator[Fault]:
    """An engine helps only after its model has loaded, which the plan says, as it says what is paid for without being used."""
    for group in scaled(s.layout.groups) if s.layout else ():
        place, minutes = f"{group.path}.autoscaling", round(ready_seconds(group) / 60)
        message = f"adds engines that serve about {minutes} minutes later, after the start of a node where none is free"
        streams = group.served.weights_uri is not None
        advice = "keep as many engines as a burst of that length needs" if streams else say("stream the weights with {weights.s3}")
        yield Fault(place, message, None, "", advice)
        if group.spec.capacity.type == "reserved":
            yield Fault(
                f"{group.path}.capacity.type", "is paid for while engines are scaled in, too", "reserved", "", "use on-demand above the minimum"
            )
        if group.role != "decode" and group.spec.measured_rates and prompt_rate(group) is None:
            yield Fault(place, "follows the queue: no measured rate reaches the workload's prompts", None, "", "measure one at their length")


@rule("autoscaling-balance", Level.WARNING, Stage.LAYOUT, "docs/forecast.md")
def autoscaling_balance(s: Subject) -> Iterator[Fault]:
    """Prefill and decode grow together: at their most, neither is left far behind by the other."""
    for served in s.served if s.layout else ():
        prefill, decode = served.spec.prefill, served.spec.decode
        if s.layout is None or prefill is None or decode is None or not (prefill.autoscaling or decode.autoscaling):
            continue
        if not served.live:  # its number is fixed until it serves
            continue
        try:
            known = situation_of(at_most(s.layout), served)
        except BalanceError:  # rule `load` says so
            known = None
        if known is not None and known.split is not None and known.rates is not None:
            full = balance(known.split, known.rates, known.workload)
            if full.off > UNEVEN:
                served_by = f"prefill serves {full.prefill_requests:.3g} requests/s, decode {full.decode_requests:.3g}"
                message = f"holds the other role back at most engines: {served_by}"
                yield _behind(served, full.bound_by, message, full.off)
            continue
        pair: tuple[tuple[RoleName, RoleSpec], ...] = (("prefill", prefill), ("decode", decode))
        growth = {n: r.most_replicas / max(1, r.least_replicas) for n, r in pair}
        slow, fast = sorted(growth, key=lambda n: growth[n])
        if growth[fast] > UNEVEN * growth[slow]:
            message = f"grows {growth[slow]:g} times while {fast} grows {growth[fast]:g} times, and the slower of both bounds the model"
            yield _behind(served, slow, message, growth[fast] / growth[slow])


def _behind(served: Served, role: RoleName, message: str, off: float) -> Fault:
    """A role that the other one outgrows by the factor `off`."""
    given, place = served.spec.roles[role].autoscaling, f"{served.path}.{role}.autoscaling.maxReplicaCount"
    ways = [use(place, math.ceil(given.max_replica_count * off / UNEVEN))] if given else []
    otherwise = say("raise its {maxReplicaCount}, with nodes for it") if given else "give it autoscaling, too"
    return Fault(f"{served.path}.{role}", message, None, f"within a factor of {UNEVEN:g}", ways=ways, otherwise=otherwise)
