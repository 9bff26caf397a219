"""KEDA as far as it can be had here: its CRDs out of the Go module, and a chart that stands for its own and brings them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench.build import UNREACHABLE, crds_of
from bench.cluster import Cluster
from bench.crds import crds as bare
from bench.engine import values_schema

SCALED_OBJECTS = "scaledobjects.keda.sh"
VALUES = (
    "image.pullPolicy",
    "image.keda.registry",
    "image.keda.repository",
    "image.keda.tag",
    "image.metricsApiServer.registry",
    "image.metricsApiServer.repository",
    "image.metricsApiServer.tag",
    "image.webhooks.registry",
    "image.webhooks.repository",
    "image.webhooks.tag",
    "rbac.scaledRefKinds",
    "permissions.operator.restrict.secret",
)
"""Values of the real chart that the project may set (kedacore/charts: keda/README.md, 2026-11-30)."""
OPERATOR = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: keda-operator, namespace: "{{ .Release.Namespace }}"}
spec:
  selector: {matchLabels: {app: keda-operator}}
  template:
    metadata: {labels: {app: keda-operator}}
    spec:
      containers:
        - {name: keda-operator, image: "ghcr.io/kedacore/keda:{{ .Chart.AppVersion }}", imagePullPolicy: "{{ .Values.image.pullPolicy }}"}
"""
CRDS = '{{- range $path, $_ := .Files.Glob "bases/*.yaml" }}\n---\n{{ $.Files.Get $path }}\n{{- end }}\n'


def crds() -> Path:
    """The folder of KEDA's CRDs; the test is skipped where the module cannot be downloaded."""
    try:
        return crds_of("keda")
    except RuntimeError as problem:
        if UNREACHABLE.search(str(problem)):
            pytest.skip(f"KEDA's module cannot be downloaded here: {problem}")
        raise


def install_crds(cluster: Cluster) -> None:
    """Put KEDA's CRDs into the API server."""
    cluster.apply(bare(crds(), "keda.sh_scaledobjects.yaml"))
    cluster.established(SCALED_OBJECTS)


def chart(folder: Path) -> Path:
    """A chart with KEDA's CRDs among its templates, as the real one has them, an operator that does nothing, and no values but known ones."""
    made = folder / "keda-chart"
    shutil.copytree(crds(), made / "bases")
    (made / "templates").mkdir()
    (made / "Chart.yaml").write_text("apiVersion: v2\nname: keda\nversion: 2.21.1\nappVersion: 2.21.1\n")
    (made / "templates/crds.yaml").write_text(CRDS)
    (made / "templates/operator.yaml").write_text(OPERATOR)
    (made / "values.schema.json").write_text(json.dumps(values_schema(VALUES)))
    return made
