"""Weights: from Hugging Face or S3, copied by a Job, kept in the pod or on the node."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from disagg_serving.manifests import copy_weights
from disagg_serving.manifests.bundle import build_all
from disagg_serving.manifests.copy_weights import MARK
from disagg_serving.planning.shapes import Layout
from disagg_serving.planning.startup import load_seconds, mirror_budget_seconds, startup_budget_seconds
from factories import aggregated, environment, layout, model

REVISION = "0123456789abcdef0123456789abcdef01234567"
S3 = {"bucket": "acme-weights"}
MIRRORED = {"s3": S3, "mirror": True, "revision": REVISION}
MODEL = "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"


def wanted(**weights: Any) -> Layout:
    """A model with prefill and decode and these weights."""
    return layout(environment(model(weights=weights)))


def of_kind(made: Layout, kind: str) -> list[dict[str, Any]]:
    """Rendered objects of a kind."""
    return [o for o in build_all(made) if o["kind"] == kind]


def pods(made: Layout) -> list[dict[str, Any]]:
    """Pod specs of all sets."""
    return [o["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"] for o in of_kind(made, "LeaderWorkerSet")]


def variables(pod: dict[str, Any]) -> dict[str, Any]:
    """Environment of the first container."""
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in pod["containers"][0]["env"]}


def test_hugging_face_is_downloaded_at_its_revision() -> None:
    """Pods load the repository at its commit with the token, into a volume that their disk request covers."""
    for pod in pods(wanted(revision=REVISION, tokenKey="hfToken")):
        args = pod["containers"][0]["args"]
        assert args[0] == MODEL
        assert f"--revision={REVISION}" in args
        assert not [a for a in args if a.startswith("--load-format")]
        env = variables(pod)
        assert env["HF_TOKEN"] == {"secretKeyRef": {"name": "hf-token", "key": "token"}}
        assert "HF_HUB_OFFLINE" not in env


def test_s3_is_streamed_by_both_roles_from_one_uri() -> None:
    """Both roles name the same URI, which NIXL's hash follows; nothing is asked of Hugging Face and no disk is asked for."""
    made = wanted(s3=S3, revision=REVISION)
    found = pods(made)
    assert {p["containers"][0]["args"][0] for p in found} == {f"s3://acme-weights/{MODEL}/{REVISION}"}
    assert len({variables(p)["VLLM_CACHE_ROOT"] for p in found}) == 1
    for pod in found:
        args, env = pod["containers"][0]["args"], variables(pod)
        assert "--load-format=runai_streamer" in args
        assert '--model-loader-extra-config={"concurrency":16,"distributed":true}' in args
        assert not [a for a in args if a.startswith("--revision")]
        assert (env["HF_HUB_OFFLINE"], env["AWS_REGION"]) == ("1", "us-east-1")
        assert "HF_TOKEN" not in env
        assert pod["containers"][0]["resources"]["requests"]["ephemeral-storage"] == "20Gi"
    assert of_kind(made, "Job") == []


@pytest.mark.parametrize(
    ("server", "config"),
    [
        ({"tensorParallel": 1}, '{"concurrency":16}'),
        ({"tensorParallel": 8, "pipelineParallel": 2}, '{"concurrency":16}'),
        ({"tensorParallel": 4}, '{"concurrency":16,"distributed":true}'),
    ],
)
def test_ranks_share_the_reading_only_inside_one_pod(server: dict[str, Any], config: str) -> None:
    """Distributed streaming is for several ranks of one pod; over nodes it is not known to work."""
    data = aggregated(model="qwen3-32b", maxModelLen=4096, weights={"s3": S3}, server={"instanceType": "p5.48xlarge", **server})
    for pod in pods(layout(environment(data))):
        assert f"--model-loader-extra-config={config}" in pod["containers"][0]["args"]


def test_prefix_is_the_repository_unless_given() -> None:
    """Two revisions never share a folder; a folder of one's own is taken as it is."""
    assert wanted(s3=S3).served[0].weights_uri == f"s3://acme-weights/{MODEL}"
    assert wanted(s3={**S3, "prefix": "llama/v2"}, revision=REVISION).served[0].weights_uri == "s3://acme-weights/llama/v2"
    assert wanted(**{**MIRRORED, "s3": {**S3, "prefix": "llama"}}).served[0].weights_uri == f"s3://acme-weights/llama/{REVISION}"


def test_mirror_job() -> None:
    """One Job with an account of its own, off the GPU nodes, with the token only from its Secret, long enough for the slowest copy."""
    made = wanted(**MIRRORED, tokenKey="hfToken")
    (job,) = of_kind(made, "Job")
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["serviceAccountName"] == "m-mirror"
    assert "m-mirror" in {o["metadata"]["name"] for o in of_kind(made, "ServiceAccount")}
    assert "nodeSelector" not in pod
    assert "nvidia.com/gpu" not in container["resources"]["requests"]
    env = variables(pod)
    assert env["HF_TOKEN"] == {"secretKeyRef": {"name": "hf-token", "key": "token"}}
    assert (env["BUCKET"], env["PREFIX"], env["REVISION"]) == ("acme-weights", f"{MODEL}/{REVISION}", REVISION)
    assert job["spec"]["activeDeadlineSeconds"] == mirror_budget_seconds(made.served[0])
    assert int(job["metadata"]["annotations"]["pulumi.com/timeoutSeconds"]) > job["spec"]["activeDeadlineSeconds"]
    compile(container["command"][2], "job", "exec")
    assert all("HF_TOKEN" not in variables(p) for p in pods(made))


def test_another_revision_is_another_job() -> None:
    """A Job's template cannot change, so its name follows what it copies; nothing else changes it."""
    names = {of_kind(wanted(**{**MIRRORED, "revision": r}), "Job")[0]["metadata"]["name"] for r in (REVISION, "a" * 40)}
    assert len(names) == 2
    (same,) = of_kind(layout(environment(model(weights=MIRRORED, maxModelLen=4096))), "Job")
    assert same["metadata"]["name"] in names


def test_node_cache_is_a_folder_of_the_nvme() -> None:
    """Downloads go to the node's own drives, in a folder of the model; compile caches stay in the pod."""
    for pod in pods(wanted(cache="node")):
        (volume,) = [v["hostPath"] for v in pod["volumes"] if v["name"] == "node-cache"]
        assert volume == {"path": "/mnt/.ephemeral/disagg-serving/m", "type": "DirectoryOrCreate"}
        env = variables(pod)
        assert env["HF_HOME"].startswith("/node-cache/")
        assert env["VLLM_CACHE_ROOT"].startswith("/weights/")
        assert pod["containers"][0]["resources"]["requests"]["ephemeral-storage"] == "20Gi"
    for pod in pods(wanted()):
        assert not [v for v in pod["volumes"] if "hostPath" in v]


def test_probes_wait_as_long_as_the_source_may_take() -> None:
    """A download is given more time than a stream, each at the slow end of what is reported."""
    slow, fast = wanted().served[0], wanted(s3=S3).served[0]
    assert load_seconds(slow) > 3 * load_seconds(fast)
    for served, made in ((slow, wanted()), (fast, wanted(s3=S3))):
        budget = startup_budget_seconds(served)
        assert budget >= 1.5 * (600 + load_seconds(served))
        for pod in pods(made):
            probe = pod["containers"][0]["startupProbe"]
            assert probe["periodSeconds"] * probe["failureThreshold"] == budget
            assert variables(pod)["VLLM_ENGINE_READY_TIMEOUT_S"] == str(budget)


class Hub:
    """Hugging Face with one repository."""

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        self.folder, self.files, self.downloads = folder, files, list[str]()

    def HfApi(self) -> Hub:  # noqa: N802 (the library's name)
        """The client."""
        return self

    def model_info(self, repository: str, *, revision: str, files_metadata: bool) -> Any:
        """Files with their sizes."""
        assert (repository, revision, files_metadata) == ("acme/m", "abc", True)

        class Info:
            sha = "abc"
            siblings = tuple(type("File", (), {"rfilename": n, "size": len(b)})() for n, b in self.files.items())

        return Info

    def hf_hub_download(self, repository: str, name: str, *, revision: str, local_dir: str) -> str:
        """Write a file and return its path."""
        assert (repository, revision) == ("acme/m", "abc")
        self.downloads.append(name)
        path = Path(local_dir) / name
        path.write_bytes(self.files[name])
        return str(path)


class Bucket:
    """S3 with one bucket; `broken` names are stored short, as an upload that was cut off."""

    def __init__(self, broken: set[str] | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.broken = broken or set()

    def get_paginator(self, operation: str) -> Bucket:
        """The only listing that is used."""
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str) -> list[dict[str, Any]]:  # noqa: N803 (boto3's names)
        """Objects below a prefix, over several pages."""
        assert Bucket == "bucket"
        found = [{"Key": k, "Size": len(v)} for k, v in self.objects.items() if k.startswith(Prefix)]
        return [{"Contents": found[:1]}, {"Contents": found[1:]}, {}]

    def upload_file(self, path: str, bucket: str, key: str) -> None:
        """Store a file."""
        assert bucket == "bucket"
        body = Path(path).read_bytes()
        self.objects[key] = body[:-1] if key.rsplit("/", 1)[1] in self.broken else body

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        """A stored text."""
        assert Bucket == "bucket"
        return {"Body": io.BytesIO(self.objects[Key])}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803
        """Store a text."""
        assert Bucket == "bucket"
        self.objects[Key] = Body


FILES = {
    "config.json": b"{}",
    "model-1.safetensors": b"12345",
    "model-2.safetensors": b"678",
    "pytorch_model.bin": b"x",
    "original/params.json": b"x",
    "README.md": b"x",
    ".gitattributes": b"x",
}
PLACE = {"REPOSITORY": "acme/m", "REVISION": "abc", "BUCKET": "bucket", "PREFIX": "acme/m/abc"}


def test_copy_takes_what_vllm_reads(tmp_path: Path) -> None:
    """The Job copies config and safetensors, no other formats, and writes its mark last."""
    hub, s3 = Hub(tmp_path, FILES), Bucket()
    assert copy_weights.main(PLACE, hub, s3) == 3
    assert list(s3.objects) == [f"acme/m/abc/{n}" for n in ("config.json", "model-1.safetensors", "model-2.safetensors", MARK)]
    mark = json.loads(s3.objects[f"acme/m/abc/{MARK}"])
    assert mark == {
        "repository": "acme/m",
        "revision": "abc",
        "files": {"config.json": 2, "model-1.safetensors": 5, "model-2.safetensors": 3},
    }


def test_copy_goes_on_where_it_was(tmp_path: Path) -> None:
    """Started again it fetches only what is missing or of the wrong size, and nothing when all is there."""
    hub, s3 = Hub(tmp_path, FILES), Bucket()
    s3.objects = {"acme/m/abc/config.json": b"{}", "acme/m/abc/model-1.safetensors": b"12", "other/model-2.safetensors": b"678"}
    assert copy_weights.main(PLACE, hub, s3) == 2
    assert hub.downloads == ["model-1.safetensors", "model-2.safetensors"]
    assert copy_weights.main(PLACE, hub, s3) == 0
    assert s3.objects["acme/m/abc/model-1.safetensors"] == b"12345"


def test_copy_never_mixes_revisions(tmp_path: Path) -> None:
    """A folder that holds another revision is left alone: files of equal size would pass for the new ones."""
    s3 = Bucket()
    s3.objects = {f"acme/m/abc/{MARK}": json.dumps({"repository": "acme/m", "revision": "older"}).encode()}
    with pytest.raises(SystemExit, match="holds acme/m at older; give this revision a folder of its own"):
        copy_weights.main(PLACE, Hub(tmp_path, FILES), s3)
    assert list(s3.objects) == [f"acme/m/abc/{MARK}"]


def test_copy_that_is_not_whole_fails_without_its_mark(tmp_path: Path) -> None:
    """A file that arrives short ends the Job with an error that names it; pods then never start on half a model."""
    s3 = Bucket(broken={"model-2.safetensors"})
    with pytest.raises(SystemExit, match=r"not whole after copying: model-2\.safetensors"):
        copy_weights.main(PLACE, Hub(tmp_path, FILES), s3)
    assert f"acme/m/abc/{MARK}" not in s3.objects


def test_copy_refuses_a_repository_that_cannot_be_streamed(tmp_path: Path) -> None:
    """Without safetensors the streamer has nothing to read, so the Job says so before it copies."""
    hub, s3 = Hub(tmp_path, {"config.json": b"{}", "pytorch_model.bin": b"x"}), Bucket()
    with pytest.raises(SystemExit, match="no safetensors"):
        copy_weights.main(PLACE, hub, s3)
    assert s3.objects == {}
