"""The Prometheus operator's kinds, made from its Go types: the module with its YAML is not served."""

from __future__ import annotations

import os
import subprocess
from hashlib import sha256
from pathlib import Path

from .build import OUT, own_module, tools
from .cluster import Cluster
from .crds import crds

TYPES = "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
KINDS = ("podmonitors", "prometheusrules")


def install_monitoring(cluster: Cluster) -> None:
    """Install PodMonitor and PrometheusRule. Raises RuntimeError with what controller-gen says."""
    for kind in KINDS:
        cluster.apply(crds(_definitions(), f"monitoring.coreos.com_{kind}.yaml"))
    cluster.established(*(f"{kind}.monitoring.coreos.com" for kind in KINDS))


def _definitions() -> Path:
    """The folder of the CRDs, made once a version; they are kept beside the programs and never in the repository."""
    (tool,) = [t for t in tools() if t.name == "controller-gen"]
    folder = OUT / "crds" / f"monitoring-{sha256(repr(tool).encode()).hexdigest()[:12]}"
    if not (folder / f"monitoring.coreos.com_{KINDS[-1]}.yaml").exists():
        command = [str(tool.binary), "crd:crdVersions=v1,allowDangerousTypes=true", f"paths={TYPES}", f"output:crd:dir={folder}"]
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
        done = subprocess.run(command, cwd=own_module(tool), env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"controller-gen failed: {done.stderr[-2000:]}")
    return folder
