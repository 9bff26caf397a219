"""A control plane on loopback: etcd, API server, controller manager, scheduler, kwok, LWS and the stand-in for Auto Mode."""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import socket
import ssl
import tempfile
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trustme
import yaml
from disagg_serving.catalog import Catalog

from .build import HERE, OUT, module_dir, tools
from .cluster import Cluster
from .crds import crds
from .instance_types import Reservation, instance_types
from .processes import Programs, free_port, wait_for

CONTROLLERS = (
    "statefulset", "deployment", "replicaset", "job", "endpoints", "endpointslice", "garbage-collector", "disruption", "namespace",
    "node-lifecycle", "taint-eviction", "pod-garbage-collector", "horizontal-pod-autoscaler", "serviceaccount",
)  # fmt: skip
ADMIN = "admin"
USERS = {
    ADMIN: ("bench-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
LWS_CRDS = ("leaderworkersets.leaderworkerset.x-k8s.io", "disaggregatedsets.disaggregatedset.x-k8s.io")
KARPENTER_CRDS = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh")
NODE_CLASS_CRD = "nodeclasses.eks.amazonaws.com"
KUBELET_CRDS = ("logs.kwok.x-k8s.io", "clusterlogs.kwok.x-k8s.io", "portforwards.kwok.x-k8s.io")
POD_END_MILLISECONDS = 1000
SLOW_MODEL = "slow"
CPU_NODE = "general-purpose"
"""A node for controllers, as Auto Mode's built-in pools would make."""


@dataclass
class ControlPlane:
    """A running bench; use it as a context manager, or call `start` and `stop`.

    `lws` runs the controller as a process with webhooks by URL; without it the LWS chart can be installed (its in-cluster webhooks
    cannot be reached here). `nodes` adds the stand-in for Auto Mode.
    """

    lws: bool = True
    nodes: bool = True
    reservations: tuple[Reservation, ...] = ()
    detach: bool = False
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="bench-")))

    def __post_init__(self) -> None:
        """Prepare folder, certificates and tokens."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.programs = Programs(self.folder, detach=self.detach)
        self._tokens = {user: secrets.token_hex(16) for user in USERS}
        self._ports: dict[str, int] = {}
        authority = trustme.CA()
        server = authority.issue_cert("127.0.0.1", "localhost")
        authority.cert_pem.write_to_path(str(self.folder / "ca.crt"))
        server.private_key_pem.write_to_path(str(self.folder / "tls.key"))
        server.cert_chain_pems[0].write_to_path(str(self.folder / "tls.crt"))
        self._ca = base64.b64encode(authority.cert_pem.bytes()).decode()
        self._tls = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
        self.faults([])

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / f"kubeconfig-{ADMIN}"

    @cached_property
    def cluster(self) -> Cluster:
        """The API server, as administrator."""
        return Cluster(self.kubeconfig)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop(keep_logs=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(keep_logs=kind is not None)

    def start(self) -> None:
        """Start everything in order. Raises NotReadyError."""
        self._etcd()
        self._api_server()
        self._controllers()
        self._kwok()
        if self.lws:
            self.start_lws()
        if self.nodes:
            self.start_standin()
        self.cluster.apply([_cpu_node()])

    def stop(self, *, keep_logs: bool = False) -> None:
        """End everything; the folder goes too, unless its logs are wanted."""
        self.programs.stop_all()
        if keep_logs:
            print(f"logs of the bench: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def faults(self, rules: list[dict[str, Any]]) -> None:
        """What the stand-in refuses from now on, see standin/faults.go."""
        path = self.folder / "faults.json"
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(rules))
        fresh.replace(path)

    def _etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{self._port('etcd')}", f"http://127.0.0.1:{self._port('etcd-peer')}"
        self.programs.start(
            "etcd",
            [
                OUT / "bin/etcd", "--data-dir", self.folder / "etcd", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync", "--log-level=warn", "--max-request-bytes=8388608",
            ],
            self._answers(f"{client}/health", b'"true"'),
        )  # fmt: skip

    def _api_server(self) -> None:
        port, folder = self._port("api-server"), self.folder
        lines = [f'{self._tokens[u]},{name},{name},"{group}"' for u, (name, group) in USERS.items()]
        (folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        for user in USERS:
            self._write_kubeconfig(user)
        self.programs.start(
            "kube-apiserver",
            [
                OUT / "bin/kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._port('etcd')}", "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1", f"--secure-port={port}", *self._serving(), f"--client-ca-file={folder}/ca.crt",
                f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=RBAC", "--anonymous-auth=false",
                "--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none", "--service-account-issuer=https://bench.invalid",
                f"--service-account-key-file={folder}/tls.key", f"--service-account-signing-key-file={folder}/tls.key",
                # EKS runs the first; the second needs tokens that only a kubelet mounts
                "--enable-admission-plugins=ExtendedResourceToleration", "--disable-admission-plugins=ServiceAccount", "--profiling=false",
            ],
            self._answers(f"https://127.0.0.1:{port}/readyz", b"ok", self._tokens[ADMIN]),
            seconds=120,
        )  # fmt: skip

    def _controllers(self) -> None:
        manager, scheduler = self._port("controller-manager"), self._port("scheduler")
        common = ("--bind-address=127.0.0.1", *self._serving(), "--leader-elect=false", "--profiling=false")
        self.programs.start(
            "kube-controller-manager",
            [
                OUT / "bin/kube-controller-manager", f"--kubeconfig={self.folder}/kubeconfig-controller-manager", f"--secure-port={manager}", *common,
                "--controllers=" + ",".join(f"{c}-controller" for c in CONTROLLERS), "--use-service-account-credentials=true",
                "--node-monitor-grace-period=60s",
            ],
            self._answers(f"https://127.0.0.1:{manager}/healthz", b"ok"),
        )  # fmt: skip
        self.programs.start(
            "kube-scheduler",
            [OUT / "bin/kube-scheduler", f"--kubeconfig={self.folder}/kubeconfig-scheduler", f"--secure-port={scheduler}", *common],
            self._answers(f"https://127.0.0.1:{scheduler}/readyz", b"ok"),
        )

    def _kwok(self) -> None:
        port, stages = self._port("kwok"), _module("kwok") / "kustomize/stage"
        known = crds(_module("kwok") / "kustomize/crd/bases")
        self.cluster.apply(one for one in known if one["metadata"]["name"] in KUBELET_CRDS)
        self.cluster.established(*KUBELET_CRDS)
        files = [
            stages / "node/fast/node-initialize.yaml",
            stages / "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
            stages / "pod/fast/pod-complete.yaml",
            self._pod_ready_stage(stages / "pod/fast/pod-ready.yaml"),
            self._pod_delete_stage(stages / "pod/fast/pod-delete.yaml"),
        ]
        self.programs.start(
            "kwok",
            [
                OUT / "bin/kwok", f"--kubeconfig={self.kubeconfig}", "--manage-all-nodes=true", "--node-lease-duration-seconds=40",
                "--node-ip=127.0.0.1", f"--server-address=127.0.0.1:{port}", *(f"--config={f}" for f in files),
                # as a kubelet it gives logs and forwards ports, where objects of these kinds say so
                f"--node-port={port}", *self._serving(), "--enable-crds=Logs,ClusterLogs,PortForward",
            ],
            self._answers(f"http://127.0.0.1:{port}/healthz", b""),
        )  # fmt: skip

    def _pod_ready_stage(self, original: Path) -> Path:
        """Kwok's stage that makes pods ready, except those of the model `slow`, which loads for ever."""
        stage = yaml.safe_load(original.read_text())
        expressions = stage["spec"]["selector"].setdefault("matchExpressions", [])
        expressions.append({"key": '.metadata.labels["app.kubernetes.io/part-of"]', "operator": "NotIn", "values": [SLOW_MODEL]})
        path = self.folder / "pod-ready.yaml"
        path.write_text(yaml.safe_dump(stage))
        return path

    def _pod_delete_stage(self, original: Path) -> Path:
        """Kwok's stage that removes deleted pods, after the time that a kubelet needs at least to end containers.

        Kwok's own takes no time, and LWS 0.9 then sometimes sees a worker's replacement before it has seen the worker go, and keeps the
        leader of the broken group (https://github.com/kubernetes-sigs/lws/issues/998, fixed after 0.10).
        """
        stage = yaml.safe_load(original.read_text())
        stage["spec"]["delay"] = {"durationMilliseconds": POD_END_MILLISECONDS}
        path = self.folder / "pod-delete.yaml"
        path.write_text(yaml.safe_dump(stage))
        return path

    def start_lws(self) -> None:
        """CRDs from the module, the controller, then its webhooks by URL."""
        cluster, webhook, health = self.cluster, self._port("lws-webhook"), self._port("lws-health")
        cluster.apply(crds(_module("lws") / "config/crd/bases"))
        cluster.established(*LWS_CRDS)
        config = {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(self.folder)},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
            "metrics": {"bindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            # the rotation waits for a certificate that only a kubelet mounts
            "internalCertManagement": {"enable": False},
        }
        (self.folder / "lws.yaml").write_text(yaml.safe_dump(config))
        self.programs.start(
            "lws",
            [OUT / "bin/lws", f"--config={self.folder}/lws.yaml", f"--kubeconfig={self.kubeconfig}", "--zap-log-level=info"],
            self._answers(f"http://127.0.0.1:{health}/readyz", b"ok"),
        )
        # readyz does not wait for the webhooks
        wait_for(lambda: _listens(webhook), "LWS webhooks")
        cluster.apply(_lws_webhooks(webhook, self._ca))

    def start_standin(self) -> None:
        """Karpenter's CRDs from the module, the NodeClass, then the stand-in with the catalogue's instance types."""
        cluster, metrics, health = self.cluster, self._port("standin-metrics"), self._port("standin-health")
        cluster.apply([*crds(_module("karpenter") / "pkg/apis/crds"), _node_class_crd()])
        cluster.established(*KARPENTER_CRDS, NODE_CLASS_CRD)
        offered = self.folder / "instance_types.json"
        offered.write_text(json.dumps(instance_types(Catalog(), self.reservations)))
        self.programs.start(
            "standin",
            [OUT / "bin/karpenter"],
            self._answers(f"http://127.0.0.1:{health}/readyz", b""),
            {
                "KUBECONFIG": str(self.kubeconfig),
                "DISABLE_LEADER_ELECTION": "true",
                "METRICS_PORT": str(metrics),
                "HEALTH_PROBE_PORT": str(health),
                "BATCH_IDLE_DURATION": "1s",
                "BATCH_MAX_DURATION": "5s",
                "INSTANCE_TYPES_FILE_PATH": str(offered),
                "SYSTEM_NAMESPACE": "kube-system",
                "STANDIN_FAULTS": str(self.folder / "faults.json"),
                "STANDIN_REFUSAL": "3s",
                "LOG_LEVEL": "info",
            },
        )

    def _serving(self) -> tuple[str, str]:
        return f"--tls-cert-file={self.folder}/tls.crt", f"--tls-private-key-file={self.folder}/tls.key"

    def _port(self, name: str) -> int:
        return self._ports.setdefault(name, free_port())

    def _answers(self, url: str, expected: bytes, token: str | None = None) -> Callable[[], bool]:
        def ask() -> bool:
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
            with urllib.request.urlopen(request, timeout=3, context=self._tls if url.startswith("https") else None) as answer:
                return expected in answer.read()

        return ask

    def _write_kubeconfig(self, user: str) -> None:
        server = {"server": f"https://127.0.0.1:{self._port('api-server')}", "certificate-authority-data": self._ca}
        path = self.folder / f"kubeconfig-{user}"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "bench",
                    "clusters": [{"name": "bench", "cluster": server}],
                    "users": [{"name": user, "user": {"token": self._tokens[user]}}],
                    "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": user}}],
                }
            )
        )
        path.chmod(0o600)


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


def _module(tool: str) -> Path:
    (found,) = [t for t in tools() if t.name == tool]
    return module_dir(found.module, found.version)


def _cpu_node() -> dict[str, Any]:
    resources = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": CPU_NODE, "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _node_class_crd() -> dict[str, Any]:
    """The NodeClass kind with a free-form spec, since its schema is in no public module; new ones are ready at once."""
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2024-01-01T01:01:01Z"}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": free, "status": {**free, "default": {"conditions": [ready]}}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NODE_CLASS_CRD},
        "spec": {
            "group": "eks.amazonaws.com",
            "scope": "Cluster",
            "names": {"kind": "NodeClass", "listKind": "NodeClassList", "plural": "nodeclasses", "singular": "nodeclass"},
            "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def _lws_webhooks(port: int, ca: str) -> list[dict[str, Any]]:
    """The chart's webhook configurations by URL instead of by Service."""
    group, changes = "leaderworkerset.x-k8s.io", ["CREATE", "UPDATE"]

    def hook(name: str, path: str, api_group: str, resource: str, operations: list[str]) -> dict[str, Any]:
        of_lws = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}
        return {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"url": f"https://127.0.0.1:{port}{path}", "caBundle": ca},
            "rules": [{"apiGroups": [api_group], "apiVersions": ["v1"], "operations": operations, "resources": [resource]}],
            **({"objectSelector": of_lws} if resource == "pods" else {}),
        }

    def configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> dict[str, Any]:
        return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "webhooks": webhooks}

    return [
        configuration(
            "MutatingWebhookConfiguration",
            "lws-mutating",
            [
                hook("mleaderworkerset.kb.io", "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset", group, "leaderworkersets", changes),
                hook("mpod.kb.io", "/mutate--v1-pod", "", "pods", ["CREATE"]),
            ],
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            "lws-validating",
            [
                hook("vleaderworkerset.kb.io", "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset", group, "leaderworkersets", changes),
                hook("vpod.kb.io", "/validate--v1-pod", "", "pods", changes),
            ],
        ),
    ]


def bench_folder() -> Path:
    """Where a bench that stays up keeps its files."""
    return HERE.parent / ".bench"
