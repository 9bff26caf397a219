"""Pods of a rendered LeaderWorkerSet as a kubelet starts them: variables filled in, in the order in which it and LeaderWorkerSet do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass(frozen=True)
class Pod:
    """The engine's container of one pod: its command line and environment, its address, and how it is asked and ended.

    `probe` is its readiness probe, `pre_stop_seconds` and `grace_seconds` what the kubelet waits before SIGTERM and, from the same
    moment on, before SIGKILL.
    """

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str]
    address: str
    probe: Mapping[str, Any]
    pre_stop_seconds: int
    grace_seconds: int


def pods_of(objects: Iterable[Mapping[str, Any]], addresses: Sequence[str]) -> list[Pod]:
    """The pods of the first replica of each LeaderWorkerSet among `objects`; the addresses are given out in that order."""
    left = iter(addresses)
    return [pod for found in objects if found["kind"] == "LeaderWorkerSet" for pod in _group(found, left)]


def _group(found: Mapping[str, Any], addresses: Iterator[str]) -> Iterator[Pod]:
    template = found["spec"]["leaderWorkerTemplate"]
    leader: str | None = None
    for index in range(template["size"]):
        address = next(addresses)
        # names stand for addresses here: nothing resolves those of a headless Service
        leader = leader or address
        given = {"LWS_GROUP_SIZE": str(template["size"]), "LWS_WORKER_INDEX": str(index), "LWS_LEADER_ADDRESS": leader}
        pod = template["workerTemplate"] if index or "leaderTemplate" not in template else template["leaderTemplate"]
        name = f"{found['metadata']['name']}-0" + (f"-{index}" if index else "")
        yield _pod(name, pod["spec"], given, address)


def _pod(name: str, spec: Mapping[str, Any], given: Mapping[str, str], address: str) -> Pod:
    (container,) = (c for c in spec["containers"] if c["name"] == "vllm")
    env = dict(given)
    for variable in container["env"]:
        env[variable["name"]] = _value(variable, env, address)
    return Pod(
        name=name,
        command=tuple(filled(text, env) for text in [*container["command"], *container["args"]]),
        env=env,
        address=address,
        probe=container["readinessProbe"],
        pre_stop_seconds=container["lifecycle"]["preStop"]["sleep"]["seconds"],
        grace_seconds=spec["terminationGracePeriodSeconds"],
    )


def _value(variable: Mapping[str, Any], before: Mapping[str, str], address: str) -> str:
    if "value" in variable:
        return filled(variable["value"], before)
    if variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}:
        return address
    raise ValueError(f"{variable['name']} comes from {variable['valueFrom']}, which is not known here")


def filled(text: str, known: Mapping[str, str]) -> str:
    """A text with `$(NAME)` replaced; a name that is not known stays, as the kubelet leaves it."""
    return _VARIABLE.sub(lambda found: known.get(found[1], found[0]), text)
