"""Rules about Kubernetes objects as they leave the program: whoever wrote them, and after every transform.

`disagg plan` runs them over the recorded program, the policy pack over what the engine is about to deploy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ... import labels
from ...credentials import carries_secret
from ...errors import Level
from ..declared import amount, entries, instance_types_of, mapping_at, node_pools, pod_templates, pools_of, taints_of, tolerates, unknown
from ..documents import AWS_SAMPLES, KARPENTER, KUBERNETES, PREFILL_AND_DECODE, TAINTS
from ..registry import Fault, Stage, Subject, rule
from .extra_arguments import EXPANDED_SECRET

DEVICES = (labels.GPU, labels.EFA)


@rule("object-limits", Level.ERROR, Stage.OBJECTS, f"{KUBERNETES}concepts/configuration/manage-resources-containers/#consuming-extended-resources")
def object_limits(s: Subject) -> Iterator[Fault]:
    """Devices are asked for as limits; a request without one, or another one, is refused by the API server."""
    for template in pod_templates(s.objects):
        for path, container in template.containers():
            resources = mapping_at(container, "resources")
            requests, limits = mapping_at(resources, "requests"), mapping_at(resources, "limits")
            for device in DEVICES if not unknown(resources.get("limits")) else ():
                asked, most = amount(requests, device), amount(limits, device)
                if device in requests and None not in (asked, most) and asked != most:
                    yield Fault(
                        f"{path}.resources.requests",
                        f"asks for {asked} {device} with a limit of {most}",
                        None,
                        f"limits of {asked}",
                        "ask for what the limits say",
                    )


@rule("object-tolerations", Level.ERROR, Stage.OBJECTS, TAINTS)
def object_tolerations(s: Subject) -> Iterator[Fault]:
    """Pods on GPUs tolerate every taint of the NodePool that they select, or they never start."""
    pools = node_pools(s.objects)
    for template in pod_templates(s.objects):
        for pool in pools_of(template, pools) if template.on_gpus else ():
            for taint in taints_of(pool):
                if taint.get("effect") != "PreferNoSchedule" and not tolerates(template, taint):
                    shown = f"{taint.get('key')}={taint.get('value', '')}:{taint.get('effect')}"
                    yield Fault(f"{template.path}.tolerations", f"lacks the taint {shown} of {pool.path}", None, shown, "add a toleration for it")


@rule("object-node-size", Level.ERROR, Stage.OBJECTS, "docs/reference/catalogue.md")
def object_node_size(s: Subject) -> Iterator[Fault]:
    """A pod asks for no more GPUs and EFA devices than a node of its pool has."""
    pools = node_pools(s.objects)
    for template in pod_templates(s.objects):
        types = {t for pool in pools_of(template, pools) for t in instance_types_of(pool) if t in s.catalog.instances}
        for device in DEVICES:
            asked = template.asks_for(device)
            most = {t: _devices(s, t, device) for t in types}
            if asked and types and asked > max(most.values()):
                best = max(most, key=lambda t: most[t])
                yield Fault(f"{template.path}.containers", f"ask for {asked} {device}, more than {best} has", None, f"up to {most[best]}")


def _devices(s: Subject, instance_type: str, device: str) -> int:
    instance = s.catalog.instances[instance_type]
    return instance.gpu.count if device == labels.GPU else instance.efa.count


@rule("object-image", Level.ERROR, Stage.OBJECTS, f"{KUBERNETES}concepts/containers/images/ and {PREFILL_AND_DECODE}")
def object_image(s: Subject) -> Iterator[Fault]:
    """Images of pods have a digest or a tag, and the tag is not `latest`."""
    for template in pod_templates(s.objects):
        for path, container in template.containers():
            image = container.get("image")
            name = image.rsplit("/", 1)[-1] if isinstance(image, str) and not unknown(image) else ":known later"
            if "@" not in name and (":" not in name or name.endswith(":latest")):
                yield Fault(f"{path}.image", "floats", image, "a tag or a digest", "name a version")


@rule("object-secrets", Level.ERROR, Stage.OBJECTS, f"{KUBERNETES}concepts/security/secrets-good-practices/", firm=True)
def object_secrets(s: Subject) -> Iterator[Fault]:
    """No secret stands in arguments or in the text of a variable, where every reader of pods sees it."""
    for template in pod_templates(s.objects):
        for path, container in template.containers():
            for i, variable in enumerate(entries(container, "env")):
                value = variable.get("value")
                if isinstance(value, str) and value and carries_secret(str(variable.get("name", "")), value):
                    yield Fault(f"{path}.env[{i}]", f"{variable.get('name')} holds a secret as text", None, "valueFrom.secretKeyRef", "use a Secret")
            for key in ("command", "args"):
                yield from _arguments(path, key, container)


def _arguments(path: str, key: str, container: Mapping[str, Any]) -> Iterator[Fault]:
    words = container.get(key)
    for i, word in enumerate(words if isinstance(words, list) else ()):
        if isinstance(word, str) and (EXPANDED_SECRET.search(word) or carries_secret("", word)):
            yield Fault(f"{path}.{key}[{i}]", "puts a secret on the command line", None, "an environment variable from a Secret", "use a Secret")


@rule("object-privileged", Level.ERROR, Stage.OBJECTS, f"{AWS_SAMPLES}k8s-manifest/lws/README.md")
def object_privileged(s: Subject) -> Iterator[Fault]:
    """Pods on GPUs are not privileged and share no namespace with the node: EFA needs neither."""
    for template in pod_templates(s.objects):
        if not template.on_gpus:
            continue
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            if template.spec.get(key) is True:
                yield Fault(f"{template.path}.{key}", "is not needed and opens the node", True, "false", "leave it out")
        for path, container in template.containers():
            if mapping_at(container, "securityContext").get("privileged") is True:
                yield Fault(f"{path}.securityContext.privileged", "is not needed and opens the node", True, "false", "add capability IPC_LOCK only")


@rule("object-disruption", Level.WARNING, Stage.OBJECTS, f"{KARPENTER}concepts/disruption/")
def object_disruption(s: Subject) -> Iterator[Fault]:
    """Serving pods on GPUs ask Karpenter not to move them."""
    for template in pod_templates(s.objects):
        kept = template.annotation(labels.DO_NOT_DISRUPT)
        if template.on_gpus and template.path.startswith("LeaderWorkerSet ") and kept.lower() != "true" and not unknown(kept):
            place = f"{template.path.removesuffix('.spec')}.metadata.annotations"
            yield Fault(place, "lets Karpenter move the pods", None, f"{labels.DO_NOT_DISRUPT}: true", "add the annotation")
