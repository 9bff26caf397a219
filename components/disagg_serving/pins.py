"""The versions that the project installs, each with the source and the day it was checked. Nothing floats."""

from __future__ import annotations

from typing import NamedTuple


class Pin(NamedTuple):
    """A version of a part that the project installs but does not contain."""

    version: str
    location: str
    source: str
    checked: str


KUBERNETES = Pin("1.36", "EKS", "https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions.html", "2026-11-29")
"""Default cluster version: current in the EKS documentation; 1.34 leaves standard support on 2026-12-02."""

LWS_CHART = Pin(
    "0.11.1",
    "oci://registry.k8s.io/lws/charts/lws",
    "https://github.com/kubernetes-sigs/lws/releases/tag/v0.11.1",
    "2026-11-29",
)
"""LeaderWorkerSet chart; needs Kubernetes 1.34 or newer."""

LWS_MINIMUM_KUBERNETES = (1, 34)

KEDA_CHART = Pin("2.21.1", "https://kedacore.github.io/charts/keda", "https://github.com/kedacore/charts/releases/tag/v2.21.1", "2026-11-30")
"""KEDA's chart, whose version is also that of its images: the repository and the chart's name."""

NEWEST_KUBERNETES = (1, 37)
"""Named in the release note of 2026-10-01: https://docs.aws.amazon.com/eks/latest/userguide/auto-change.html."""

DEFAULT_ROUTER = "llm-d-router-0.10.0"
"""Id in catalog/routers: chart, images, sidecar and plugins of one release."""

DCGM_CHART = Pin(
    "4.8.2",
    "https://nvidia.github.io/dcgm-exporter/helm-charts/dcgm-exporter",
    "https://github.com/NVIDIA/dcgm-exporter/blob/4.5.3-4.8.2/deployment/Chart.yaml",
    "2026-11-30",
)
DCGM_IMAGE = "nvcr.io/nvidia/k8s/dcgm-exporter:4.5.3-4.8.2-ubuntu22.04"
"""Not the chart's own distroless tag: that image has no cache of the linker and ends at its start (https://github.com/NVIDIA/dcgm-exporter/issues/612)."""

DEFAULT_ENGINE = "vllm-0.33.0-efa"
"""Id in catalog/engines: the first vLLM release with an official EFA image and with the stale-peer fix."""


def lws_image(version: str) -> str:
    """The LeaderWorkerSet controller's image, which the chart of a release names."""
    return f"registry.k8s.io/lws/lws:v{version}"


def keda_images(version: str) -> dict[str, str]:
    """KEDA's images by their key in the chart's values, which the chart of a release names (https://github.com/kedacore/charts/blob/v2.21.1/keda/README.md)."""
    names = {"keda": "keda", "metricsApiServer": "keda-metrics-apiserver", "webhooks": "keda-admission-webhooks"}
    return {key: f"ghcr.io/kedacore/{name}:{version}" for key, name in names.items()}
