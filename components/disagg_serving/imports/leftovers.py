"""What no reader used: keys that the project has its own answer to, and keys that nobody knows."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .found import Kind, Note
from .source import Part, names_secret

_PROBES = "three probes are generated, the first with the time that the checkpoint takes"
_NODES = "each role has node pools of its own; on a cluster without them set `nodeSelector` and `tolerations` of the role"
_STORAGE = "`weights` says where weights are kept"
_SHARE = "the pod gets its share of the node; `cpu`, `memoryGiB`, `shmGiB` and `ephemeralStorageGiB` of the role change it"
_RIGHTS = "pods run without privileges, with IPC_LOCK where EFA needs it"
_ROUTING = "router, Services and load balancer are generated"
_ROLLOUT = "start, replacement and scaling of groups are generated; `autoscaling` of the role changes the last"
_NAMES = "names and labels are generated"
_OBSERVED = "`observability` says what is scraped"

_KEYS = {
    _PROBES: "startupProbe livenessProbe readinessProbe lifecycle terminationGracePeriodSeconds healthcheck",
    _NODES: "nodeSelector affinity tolerations topologySpreadConstraints nodeSelectorTerms nodeName runtimeClassName schedulerName",
    _STORAGE: "volumes volumeMounts volumeClaimTemplates pvcStorage pvcs pvcAccessMode pvcMatchLabels storageClass compilationCache storage size "
    "mountModelVolume extraVolumes extraVolumeMounts modelCache",
    _SHARE: "resources requests limits custom cpu memory requestCPU requestMemory limitCPU limitMemory requestGPUType shmSize shm_size sharedMemory "
    "ephemeral-storage ulimits deploy ipc",
    _RIGHTS: "securityContext containerSecurityContext podSecurityContext hostIPC hostNetwork hostPID runtime cap_add privileged serviceAccount "
    "serviceAccountName serviceAccountOverride automountServiceAccountToken imagePullPolicy imagePullSecrets",
    _ROUTING: "ports expose routing router routerSpec gateway serviceName containerPort servicePort networks networkConfig subdomain subdomainPolicy "
    "dnsPolicy inferencePool epp cacheserverSpec depends_on",
    _ROLLOUT: "strategy rolloutStrategy updateStrategy restartPolicy startupPolicy podManagementPolicy selector restart progressDeadlineSeconds "
    "revisionHistoryLimit minReadySeconds autoscaling kedaConfig hpa placementPolicy",
    _NAMES: "labels annotations metadata name nameOverride fullnameOverride container_name hostname workingDir working_dir extraPodMetadata version "
    "status enableServiceLinks dynamoNamespace componentType subComponentType type create enabled enableEngine enableRouter global tty stdin logging",
    _OBSERVED: "monitoring podmonitor serviceMonitor metrics tracing",
}
OF_PROJECT = {key: reason for reason, keys in _KEYS.items() for key in keys.split()}
"""Keys of all forms to which the project has its own answer, with that answer."""


_LATER = re.compile(r"\$[{(A-Za-z_]")
_READ = ("replicas", "size", "replicaCount", "slices", "tensor", "data", "nodeCount")


def left_over(document: Part) -> Iterator[Note]:
    """A note for each uppermost part that nobody used; what stands there is never shown."""
    for part in document.unread():
        keys = [key for key in part.path if not key.startswith("[")]
        if part.value is None or part.value in ({}, [], "") or not keys:
            continue
        known = next((key for key in reversed(keys) if key in OF_PROJECT), "")
        if names_secret(keys[-1]):
            yield Note(Kind.UNSAID, part.where, part.shown, "holds a secret, which no stack file may")
        elif isinstance(part.value, str) and _LATER.search(part.value) and keys[-1] in _READ:
            yield Note(Kind.UNSAID, part.where, part.shown, "is a variable that is put in later; import what comes out then")
        elif known:
            yield Note(Kind.REPLACED, part.where, part.shown, OF_PROJECT[known])
        else:
            yield Note(Kind.UNSAID, part.where, part.shown, "is no key that is read here")
