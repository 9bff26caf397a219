"""Rules about weights: where they come from and who may read them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...corrections import written
from ...errors import Level
from ...phrases import say
from ...place import Place
from ...planning.drafts import checkpoint_gb
from ...planning.shapes import Served, group_size
from ...spec import S3WeightsSpec
from ...spec.network import region_of
from ..documents import EKS, IAM, VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use

MUCH_GB = 1000
COMMIT = re.compile(r"[0-9a-f]{7,40}")
HUB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
FOLDER = re.compile(r"[A-Za-z0-9._/-]+")
"""What a folder of a bucket may be made of: other characters mean something in IAM policies and URIs."""


@rule("weights-source", Level.ERROR, Stage.FORM, "our choice: docs/how-to/weights-to-s3.md", firm=True)
def weights_source(s: Subject) -> Iterator[Fault]:
    """A mirror has a place and a revision, and nothing is set that the source does not use."""
    for of_pair, model in s.written():
        path, weights = f"{of_pair}.weights", model.weights
        if weights.mirror and weights.s3 is None:
            yield Fault(f"{path}.s3", "is required with mirror", None, "the bucket to copy to", "add it", ways=[remove(f"{path}.mirror")])
        if weights.mirror and weights.revision and not COMMIT.fullmatch(weights.revision):
            message = "is no commit, so another copy would be made of what it names later"
            yield Fault(f"{path}.revision", message, weights.revision, "a commit, 7 to 40 hexadecimal digits", "name the commit")
        if weights.mirror and model.repository and not HUB_NAME.fullmatch(model.repository):
            place, ways = f"{of_pair}.repository", [remove(f"{path}.mirror")]
            yield Fault(place, "is no repository of a hub, which mirror copies", model.repository, "owner/name", ways=ways)
        if weights.mirror and weights.revision is None:
            yield Fault(
                f"{path}.revision", "is required with mirror: a copy of a floating head would be another one each time", None, "a commit", "add it"
            )
        if weights.s3 is None:
            continue
        if weights.cache == "node":
            yield Fault(f"{path}.cache", "has no effect: what streams from S3 is kept nowhere", "node", "pod", ways=[remove(f"{path}.cache")])
        if not weights.mirror and weights.token_key:
            place, ways = f"{path}.tokenKey", [remove(f"{path}.tokenKey"), use(f"{path}.mirror", True)]
            yield Fault(place, "has no effect: nothing is read from Hugging Face", weights.token_key, "without it", ways=ways)


@rule("weights-streamer", Level.ERROR, Stage.FORM, f"{VLLM}docker/Dockerfile (runai-model-streamer)")
def weights_streamer(s: Subject) -> Iterator[Fault]:
    """Weights stream from S3 only with an image that carries the Run:ai streamer."""
    for served in s.served:
        if served.spec.weights.s3 and not served.engine.runai_streamer:
            able = [e for e in s.catalog.engines if s.catalog.engines[e].runai_streamer]
            path = f"{served.path}.engine"
            yield Fault(path, "has no streamer for S3", served.spec.engine, ", ".join(able), ways=[use(path, *reversed(able))])


@rule("weights-bucket", Level.ERROR, Stage.FORM, "our choice: docs/how-to/weights-to-s3.md", firm=True)
def weights_bucket(s: Subject) -> Iterator[Fault]:
    """Models that share a bucket say the same about it."""
    first: dict[str, tuple[int, S3WeightsSpec]] = {}
    for i, model in enumerate(s.spec.models):
        s3 = model.weights.s3
        if s3 is None:
            continue
        if ".." in s3.bucket or all(part.isdigit() for part in s3.bucket.split(".")) or s3.bucket.startswith("xn--"):
            yield Fault(
                f"models[{i}].weights.s3.bucket", "is no name that S3 takes", s3.bucket, "letters among the parts, no two dots", "choose another"
            )
        zone = s.spec.network.zone
        if s3.kms_key_arn and zone and s3.kms_key_arn.split(":")[3] != region_of(zone):
            yield Fault(
                f"models[{i}].weights.s3.kmsKeyArn", f"is not of {region_of(zone)}", s3.kms_key_arn, f"a key of {region_of(zone)}", "use one there"
            )
        other, theirs = first.setdefault(s3.bucket, (i, s3))
        for key, ours, value in (("create", s3.create, theirs.create), ("kmsKeyArn", s3.kms_key_arn, theirs.kms_key_arn)):
            if ours != value:
                where, path = Place(("models", other, "weights", "s3", key)), f"models[{i}].weights.s3.{key}"
                yield Fault(path, say("is not that of {} for the same bucket", where), ours, written(value), ways=[use(path, value)])


@rule("weights-folder", Level.ERROR, Stage.FORM, f"{IAM}reference_policies_elements_resource.html", firm=True)
def weights_folder(s: Subject) -> Iterator[Fault]:
    """Each folder of a bucket holds one revision of one repository: engines read all that is below theirs."""
    seen: list[Served] = []
    for served in s.served:
        if served.weights_uri is None:
            continue
        path = f"{served.path}.weights.s3.prefix"
        if not FOLDER.fullmatch(served.s3_prefix) or {"", ".", ".."} & set(served.s3_prefix.split("/")):
            yield Fault(path, "holds more than letters, digits and . _ / -", served.s3_prefix, "a plain folder", "set prefix")
        for other in seen:
            if _overlap(served, other):
                message = say("shares files with {}, that of {}, whose weights are others", other.s3_prefix, Place.parse(other.path))
                yield Fault(path, message, served.s3_prefix, "a folder of its own", "set prefix")
        seen.append(served)


@rule("weights-access", Level.WARNING, Stage.FORM, f"{EKS}pod-identities.html")
def weights_access(s: Subject) -> Iterator[Fault]:
    """Who reads from S3 needs a role; on a cluster by kubeconfig somebody else has to give it."""
    existing = s.spec.existing_cluster
    if existing is None or not existing.kubeconfig:
        return
    for i, model in enumerate(s.spec.models):
        s3 = model.weights.s3
        if s3 is None:
            continue
        accounts = f"{model.name} in namespace {model.kubernetes_namespace}"
        message = f"is read by service account {accounts}, for which no role is made on a cluster by kubeconfig"
        yield Fault(f"models[{i}].weights.s3.bucket", message, s3.bucket, "a Pod Identity association", "make one, or find the cluster by name")
        if s3.create:
            path, message = f"models[{i}].weights.s3.create", "needs AWS, which a cluster by kubeconfig does without"
            yield Fault(path, message, True, "false", level=Level.ERROR, ways=[remove(path)])


@rule("weights-download", Level.WARNING, Stage.FORM, "our choice: docs/how-to/weights-to-s3.md")
def weights_download(s: Subject) -> Iterator[Fault]:
    """Together the pods do not download a terabyte or more from Hugging Face at each start."""
    for served in s.served:
        if served.weights_uri or served.spec.weights.cache == "node":
            continue
        pods = _pods(served)
        total = pods * checkpoint_gb(served)
        if total >= MUCH_GB:
            message = f"is downloaded by each of {pods} pods: {total:,.0f} GB from Hugging Face at every start, through the NAT gateway"
            fix = say("set {weights.s3} and {weights.mirror}, which copies it once")
            yield Fault(f"{served.path}.weights", message, f"{checkpoint_gb(served):g} GB", f"less than {MUCH_GB} GB in all", fix)


@rule("node-cache", Level.WARNING, Stage.FORM, f"{EKS}ml-inference-fast-model-loading.html and docs/proof.md")
def node_cache(s: Subject) -> Iterator[Fault]:
    """A cache on the node is not proven on Auto Mode: SELinux may refuse the folder, and nothing empties it or counts its size."""
    for i, model in enumerate(s.spec.models):
        if model.weights.cache == "node" and model.weights.s3 is None:
            message = "is not proven: SELinux may refuse the folder, no request counts its size, and it is emptied only with the node"
            path = f"models[{i}].weights.cache"
            yield Fault(path, message, "node", "pod", "try it on one node before you rely on it", ways=[remove(path)])


def _overlap(one: Served, other: Served) -> bool:
    """Whether one would read the other's files; models of one repository may share a folder, or a base with a folder for each revision."""
    if _bucket(one) != _bucket(other):
        return False
    if one.s3_base != other.s3_base:
        return _nested(one.s3_base, other.s3_base)
    return one.repository != other.repository or (one.s3_prefix != other.s3_prefix and _nested(one.s3_prefix, other.s3_prefix))


def _nested(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _bucket(served: Served) -> str | None:
    return served.spec.weights.s3.bucket if served.spec.weights.s3 else None


def _pods(served: Served) -> int:
    engines = {n: r.most_replicas if served.live else r.least_replicas for n, r in served.spec.roles.items()}
    return sum(engines[n] * group_size(r, served.instances[n]) for n, r in served.spec.roles.items())
