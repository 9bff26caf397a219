"""Scaled roles that break a rule."""

from __future__ import annotations

from typing import Any

from factories import aggregated, environment, model, role

from .case import DECODE, PREFILL, SERVER, Case

PROMETHEUS = {"prometheusAddress": "http://prometheus-operated.monitoring.svc:9090"}
GLM = {"model": "glm-5-fp8", "maxModelLen": 131072, "kvCacheDtype": "fp8"}
RESERVED = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 3}


def scaled(side: str = "decode", *, given: dict[str, Any] | None = None, **autoscaling: Any) -> dict[str, Any]:
    """An environment whose one model has a role with this autoscaling; `given` are other fields of the role."""
    one = role(autoscaling={"maxReplicaCount": 2, **autoscaling}, **(given or {}))
    return environment(aggregated(server=one) if side == "server" else model(**{side: one}), autoscaling=PROMETHEUS)


AUTOSCALING_CASES = [
    Case("no most", environment(model(decode=role(autoscaling={})), autoscaling=PROMETHEUS), f"{DECODE}.autoscaling.maxReplicaCount", fix="add it"),
    Case("KEDA key of another object", scaled(minReplicas=1), f"{DECODE}.autoscaling.minReplicas", allowed="minReplicaCount", fix="did you mean"),
    Case(
        "to zero",
        scaled(minReplicaCount=0),
        f"{DECODE}.autoscaling.minReplicaCount",
        "0",
        "1 or more",
        "use 1",
        "nobody measures load or holds requests",
    ),
    Case("less than least", scaled(minReplicaCount=3), f"{DECODE}.autoscaling.maxReplicaCount", "2", "3 or more", "use 3"),
    Case("most of nothing", scaled(maxReplicaCount=0), f"{DECODE}.autoscaling.maxReplicaCount", "0", "1 or more", "use 1"),
    Case(
        "number beside bounds",
        scaled(given={"replicas": 2}),
        f"{DECODE}.replicas",
        "2",
        "without it",
        "remove it and set autoscaling.minReplicaCount: 2",
    ),
    Case(
        "no Prometheus",
        environment(model(decode=role(autoscaling={"maxReplicaCount": 2}))),
        "autoscaling.prometheusAddress",
        allowed="prometheus-operated.monitoring.svc",
        fix="add it",
    ),
    Case(
        "Prometheus with a password",
        environment(autoscaling={"prometheusAddress": "http://me:secret@prometheus:9090"}),
        "autoscaling.prometheusAddress",
        allowed="without user and key",
    ),
    Case("Prometheus that floats", environment(autoscaling={"version": "latest"}), "autoscaling.version", "latest", "an exact version"),
    Case("seconds of prompts on decode", scaled(backlogSeconds=2), f"{DECODE}.autoscaling.backlogSeconds", "2", "kvCacheUsage", "remove it"),
    Case(
        "seconds of prompts without a rate",
        scaled("prefill", backlogSeconds=2),
        f"{PREFILL}.autoscaling.backlogSeconds",
        "2",
        "with measuredRates",
        "or use waitingRequests",
    ),
    Case(
        "seconds of prompts without a router",
        environment(
            aggregated(
                gateway={"enabled": False},
                server=role(
                    autoscaling={"maxReplicaCount": 2, "backlogSeconds": 2}, measuredRates=[{"inputTokens": 8000, "tokensPerSecondPerGPU": 5000}]
                ),
            ),
            autoscaling=PROMETHEUS,
        ),
        f"{SERVER}.autoscaling.backlogSeconds",
        "2",
        "waitingRequests, kvCacheUsage",
        "use one of these",
    ),
    Case("share above one", scaled(kvCacheUsage=80), f"{DECODE}.autoscaling.kvCacheUsage", "80"),
    Case("longer than a HorizontalPodAutoscaler allows", scaled(scaleUpPeriodSeconds=3600), f"{DECODE}.autoscaling.scaleUpPeriodSeconds", "3600"),
    Case(
        "more than is allowed",
        scaled(given={"capacity": {"nodes": 2}}, maxReplicaCount=9),
        f"{DECODE}.capacity.nodes",
        "2",
        "at least 3",
        "set autoscaling.maxReplicaCount: 8, or use 3",
    ),
    Case(
        "more groups than are reserved",
        environment(
            aggregated(**GLM, server=role(tensorParallel=8, pipelineParallel=2, capacity=RESERVED, autoscaling={"maxReplicaCount": 2})),
            autoscaling=PROMETHEUS,
        ),
        f"{SERVER}.capacity.nodes",
        "3",
        "at least 4",
        "set autoscaling.maxReplicaCount: 1",
    ),
    Case(
        "namespace of KEDA",
        environment(aggregated(name="keda", server=role(autoscaling={"maxReplicaCount": 2})), autoscaling=PROMETHEUS),
        "models[0].namespace",
        "keda",
        "a namespace of its own",
    ),
]
