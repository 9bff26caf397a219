"""Images and charts from mirrors."""

from __future__ import annotations

import pytest
from disagg_serving.manifests.bundle import build_all, charts, images
from disagg_serving.manifests.gateway import router_values
from disagg_serving.manifests.lws import chart_values
from disagg_serving.manifests.observability.dcgm import exporter_chart
from disagg_serving.pins import DCGM_CHART
from disagg_serving.planning.image_sources import full_name, in_repository, located
from factories import aggregated, check, environment, layout, model, role
from hypothesis import given
from hypothesis import strategies as st

MIRROR = {
    "docker.io": "mirror.example.com/hub",
    "docker.io/envoyproxy": "mirror.example.com/envoy",
    "ghcr.io/llm-d": "mirror.example.com/llm-d",
    "registry.k8s.io": "mirror.example.com:5000/k8s",
}


@pytest.mark.parametrize(
    ("reference", "wanted"),
    [
        ("vllm/vllm-openai:v1", "mirror.example.com/hub/vllm/vllm-openai:v1"),
        ("docker.io/vllm/vllm-openai@sha256:abc", "mirror.example.com/hub/vllm/vllm-openai@sha256:abc"),
        ("docker.io/envoyproxy/envoy:v1", "mirror.example.com/envoy/envoy:v1"),
        ("docker.io/envoyproxy-other/envoy:v1", "mirror.example.com/hub/envoyproxy-other/envoy:v1"),
        ("oci://ghcr.io/llm-d/charts/router", "oci://mirror.example.com/llm-d/charts/router"),
        ("oci://registry.k8s.io/lws/charts/lws", "oci://mirror.example.com:5000/k8s/lws/charts/lws"),
        ("public.ecr.aws/x/y:1", "public.ecr.aws/x/y:1"),
        ("ubuntu:24.04", "mirror.example.com/hub/ubuntu:24.04"),
        ("localhost:5000/x:1", "localhost:5000/x:1"),
    ],
)
def test_longest_prefix_wins(reference: str, wanted: str) -> None:
    """A prefix ends where a name of the path ends, the longest one is taken, and what has no mirror stays."""
    assert located(reference, MIRROR) == wanted


WORD = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)


@given(
    st.lists(WORD, min_size=1, max_size=3), WORD, st.dictionaries(WORD.map(lambda w: f"{w}.io"), WORD.map(lambda w: f"{w}.example.com"), max_size=4)
)
def test_tag_and_name_survive(path: list[str], tag: str, sources: dict[str, str]) -> None:
    """Only the front of a reference is replaced, and without sources nothing is."""
    reference = f"{path[0]}.io/{'/'.join([*path, 'image'])}:{tag}"
    assert located(reference, {}) == reference
    assert located(reference, sources).endswith(f"/image:{tag}")
    host = f"{path[0]}.io"
    assert located(reference, sources).startswith(f"{sources.get(host, host)}/")


def test_an_air_gapped_environment_reads_everything_from_its_mirror() -> None:
    """With a mirror for each registry no image and no chart comes from anywhere else."""
    data = environment(
        model(), aggregated(name="b", weights={"s3": {"bucket": "acme"}, "mirror": True, "revision": "0123abcdef"}), imageSources=MIRROR
    )
    made = layout(data)
    listed = [*images(made), *charts(made)]
    assert len(listed) == 7
    assert [i for i in listed if not i.removeprefix("oci://").startswith("mirror.example.com")] == []
    values = router_values(made.served[0], made.groups)["router"]
    assert values["epp"]["image"] == {
        "registry": "mirror.example.com/llm-d",
        "repository": "llm-d-router-endpoint-picker",
        "tag": "v0.10.0",
        "pullPolicy": "IfNotPresent",
    }
    assert values["proxy"]["image"] == "mirror.example.com/envoy/envoy:distroless-v1.33.2"
    manager = chart_values(made.spec.lws, made.spec.image_sources)["image"]["manager"]
    assert manager == {"repository": "mirror.example.com:5000/k8s/lws/lws", "tag": "v0.11.1"}
    jobs = [o for o in build_all(made) if o["kind"] == "Job"]
    assert jobs[0]["spec"]["template"]["spec"]["containers"][0]["image"].startswith("mirror.example.com/hub/vllm/")


def test_without_mirrors_the_chart_names_its_own_image() -> None:
    """The LWS chart of a release knows its image; it is not named a second time."""
    assert "image" not in chart_values(layout(environment(model())).spec.lws, {})


EVERYTHING = {
    "autoscaling": {"prometheusAddress": "http://prometheus.monitoring.svc:9090"},
    "observability": {"podMonitors": True, "dashboards": True, "alerts": True, "dcgmExporter": "chart"},
}
SCALED = model(decode=role(autoscaling={"maxReplicaCount": 3}))


def test_render_and_the_rule_agree_about_every_registry_that_is_read() -> None:
    """With all charts installed, a mirror of each listed registry moves everything that is listed, and the rule calls none of them unused."""
    made = layout(environment(SCALED, **EVERYTHING))
    listed = [*images(made), *charts(made)]
    assert any("nvidia.github.io" in reference for reference in listed)
    hosts = {full_name(reference).partition("/")[0] for reference in listed}
    data = environment(SCALED, imageSources={host: f"mirror.example.com/{host}" for host in hosts}, **EVERYTHING)
    moved = layout(data)
    assert [r for r in (*images(moved), *charts(moved)) if not full_name(r).startswith("mirror.example.com/")] == []
    assert [f.path for f in check(data).findings if f.id == "image-sources"] == []


def test_the_exporters_chart_comes_from_the_mirror_of_its_repository() -> None:
    """NVIDIA's chart repository is mirrored as an OCI artifact, like KEDA's, and a chart of one's own by its prefix."""
    sources = {"nvidia.github.io/dcgm-exporter/helm-charts": "mirror.example.com/charts"}
    made = layout(environment(SCALED, imageSources=sources, **EVERYTHING))
    assert exporter_chart(made.spec) == ("oci://mirror.example.com/charts/dcgm-exporter", DCGM_CHART.version)
    assert in_repository(exporter_chart(made.spec)[0])[1] is None
