"""Rules across a whole program: what its components cannot see of each other.

`disagg plan` runs them over the recorded program, the policy pack over what the engine is about to deploy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ... import labels
from ...errors import Level
from ..declared import KUBERNETES, OWNER, Declared, amount, mapping_at, node_pools, pod_templates, refused, unknown, values_of
from ..documents import KARPENTER, OBJECT_NAMES, SELECTORS
from ..registry import Fault, Stage, Subject, rule

CLUSTERS = ("eks:index:Cluster", "aws:eks/cluster:Cluster")
CONTROLLERS = {"Lws": "install", "Autoscaling": "autoscaling.install"}
INSTALLED = {**CONTROLLERS, "Observability": "observability.dcgm_exporter"}
"""Arguments that leave a chart out, by component; the first ones' charts install CRDs, which a cluster has once."""
SAME, SAME_CRDS = "is the same object of a cluster as", "makes the same CRDs of a cluster as"
BY_DEFAULT = "is, unless its kubeconfig has another namespace than `default`, the same object of a cluster as"
LIMIT_ADVICE = "give NodePools every model as it is served, with the same replicas and candidate"
ENVIRONMENT = f"{OWNER}:index:Environment"
CHART, PROVIDER = "kubernetes:helm.sh/v4:Chart", "pulumi:providers:kubernetes"
NAMES = {
    "eks:index:Cluster": ("EKS cluster", ("name",)),
    "aws:eks/cluster:Cluster": ("EKS cluster", ("name",)),
    "aws:eks/accessEntry:AccessEntry": ("access entry", ("clusterName", "principalArn")),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": ("Pod Identity association", ("clusterName", "namespace", "serviceAccount")),
    "aws:iam/role:Role": ("IAM role", ("name",)),
    "aws:iam/policy:Policy": ("IAM policy", ("name",)),
    "aws:s3/bucket:Bucket": ("bucket", ("bucket",)),
    "aws:cloudwatch/logGroup:LogGroup": ("log group", ("name",)),
}
"""What AWS knows resources by, where programs give it: by type what it is called, and the inputs that are its name together."""


@rule("object-twice", Level.ERROR, Stage.OBJECTS, OBJECT_NAMES, firm=True)
def object_twice(s: Subject) -> Iterator[Fault]:
    """An object of a cluster, or a release of a chart, is declared once: two would overwrite each other, and deleting one deletes both."""
    first: dict[tuple[str, ...], Declared] = {}
    again: dict[tuple[str, str, str], list[tuple[Declared, Declared]]] = defaultdict(list)
    elsewhere = {o.urn for o in s.objects if o.type == PROVIDER and o.manifest.get("namespace")}
    for declared in s.objects:
        key = _identity(declared, "" if declared.provider in elsewhere else "default")
        one = first.setdefault(key, declared) if key else declared
        if one is not declared:
            again[one.parent, declared.parent, _alike(one, declared)].append((one, declared))
    for (_, _, alike), pairs in again.items():
        one, other = min(pairs, key=lambda pair: pair[1].path)
        more = f", and so it is with {len(pairs) - 1} more of {other.owner}" if len(pairs) > 1 else ""
        level = Level.WARNING if alike == BY_DEFAULT else None
        yield Fault(other.path, f"{alike} {_describe(one, other)}{more}", None, "", _made_once(one, other, [o for _, o in pairs]), level)


def _identity(declared: Declared, default: str) -> tuple[str, ...]:
    """What a cluster knows an object by, or a release; empty where that is not known, or where it changes what somebody else makes.

    `default` is the namespace that counts as none. What our charts of controllers make is the whole cluster's, in whatever namespace they run.
    """
    metadata = _metadata(declared)
    kind, name, namespace = declared.type if declared.type == CHART else declared.kind, metadata.get("name"), metadata.get("namespace") or ""
    if not kind or not isinstance(name, str) or unknown([name, namespace, declared.provider]) or declared.type.endswith("Patch"):
        return ()
    place = "" if namespace == default or (declared.type == CHART and declared.component in CONTROLLERS) else str(namespace)
    return declared.provider, str(declared.manifest.get("apiVersion", "")).rpartition("/")[0], kind, place, name


def _metadata(declared: Declared) -> Mapping[str, Any]:
    return declared.manifest if declared.type == CHART else mapping_at(declared.manifest, "metadata")


def _alike(one: Declared, other: Declared) -> str:
    """What two of one identity have in common, in words; a kubeconfig may have another namespace for objects that name none."""
    if (_metadata(one).get("namespace") or "") == (_metadata(other).get("namespace") or ""):
        return SAME
    return SAME_CRDS if one.type == CHART and one.component in CONTROLLERS else BY_DEFAULT


def _made_once(one: Declared, other: Declared, objects: Sequence[Declared]) -> str:
    """What to do about objects that two make."""
    makers, namespaces = {one.component, other.component}, all(o.kind == "Namespace" for o in objects)
    able = [o for o in (other, one) if o.component == "ModelServing" and ENVIRONMENT not in o.urn]
    if namespaces and able:
        return f"give {able[0].owner} `create_namespace=False`"
    if "" in makers:
        ours = next((o for o in (one, other) if o.component), None)
        return f"leave it to {ours.owner}" if ours else "make it once, or give one another name"
    if len(makers) > 1 and namespaces:
        return "give one another `namespace`"
    by_charts = one.component == "Lws" or all(o.type == CHART or o.kind == "Namespace" or CHART in o.parent for o in objects)
    if len(makers) == 1 and by_charts and one.component in INSTALLED:
        return f"set `{INSTALLED[one.component]}` to `existing` in all but one"
    return (
        "make one NodePools with all models" if makers == {"NodePools"} else "make it once, or give each model a `name` and a `namespace` of its own"
    )


def _describe(one: Declared, other: Declared) -> str:
    """The first of two, in words that tell it from the other."""
    return f"{one.path} of {one.owner}" if _differ(one, other) else f"{one.urn}, besides {other.urn}"


def _differ(one: Declared, other: Declared) -> bool:
    """Whether short names tell two apart."""
    return (one.path, one.owner) != (other.path, other.owner)


@rule(
    "name-twice",
    Level.ERROR,
    Stage.OBJECTS,
    "https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html and "
    "https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html",
    firm=True,
)
def name_twice(s: Subject) -> Iterator[Fault]:
    """A name in AWS is given to one resource: the second cannot be made."""
    first: dict[tuple[str, ...], Declared] = {}
    for declared in s.objects:
        noun, keys = NAMES.get(declared.type, ("", ()))
        values = [declared.provider or "default", *(declared.manifest.get(key) for key in keys)]
        if not keys or not all(isinstance(v, str) and v and not unknown(v) for v in values):
            continue
        name = [str(v) for v in values]
        one = first.setdefault((declared.type, str(declared.manifest.get("region", "")), *name), declared)
        if one is not declared:
            which = f"{noun} {one.path.partition(' ')[2]} of {one.owner}" if _differ(one, declared) else f"{noun} {one.urn}"
            yield Fault(declared.path, f"is the name of {which}, too", "/".join(name[1:]), "", "give one another name")


@rule("object-cluster", Level.ERROR, Stage.OBJECTS, "https://www.pulumi.com/registry/packages/kubernetes/installation-configuration/")
def object_cluster(s: Subject) -> Iterator[Fault]:
    """Components of a program that makes a cluster name the Kubernetes provider that leads to one."""
    made = [d for d in s.objects if d.type in CLUSTERS]
    reported: set[str] = set()
    for declared in s.objects if made else ():
        if declared.type.startswith(KUBERNETES) and declared.is_part_of_ours and not declared.provider and declared.parent not in reported:
            reported.add(declared.parent)
            message = (
                f"and all of {declared.owner} would go to whatever cluster the machine's kubeconfig names, while the program makes {made[0].path}"
            )
            advice = f"give `opts=pulumi.ResourceOptions(providers=[{_leading_to(made[0])}])`, or set `kubernetes:context` where another one is meant"
            yield Fault(declared.path, message, None, "", advice)


def _leading_to(cluster: Declared) -> str:
    """A provider for a cluster, as a program writes it."""
    if cluster.is_part_of_ours:
        return "environment.cluster.provider" if ENVIRONMENT in cluster.urn else "cluster.provider"
    kubeconfig = "cluster.kubeconfig_json" if cluster.type == CLUSTERS[0] else "..."
    return f"pulumi_kubernetes.Provider('{cluster.path.partition(' ')[2]}', kubeconfig={kubeconfig})"


@rule("object-pool", Level.ERROR, Stage.OBJECTS, f"{SELECTORS} and {KARPENTER}concepts/nodepools/")
def object_pool(s: Subject) -> Iterator[Fault]:
    """Where a program makes NodePools, they have nodes for its models' pods, and GPUs enough within their limits; other stacks may make some."""
    makers = node_pools(s.objects)
    asked: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for declared in s.objects if makers else ():
        pools = [p for p in makers if p.provider == declared.provider]
        on_ours = declared.is_part_of_ours and declared.kind == "LeaderWorkerSet" and any(p.is_part_of_ours for p in pools)
        template = (
            next((t for t in pod_templates([declared]) if t.on_gpus and labels.POOL in mapping_at(t.spec, "nodeSelector")), None) if on_ours else None
        )
        if template is None:
            continue
        selector = mapping_at(template.spec, "nodeSelector")
        fitting = [p for p in pools if not refused(p, selector)]
        if not fitting:
            yield _on_no_pool(f"{template.path}.nodeSelector", selector, pools)
        elif len(fitting) == 1:
            asked[fitting[0].urn].append((declared.path, _gpus(declared)))
    for pool in makers:
        limit, sets = amount(mapping_at(pool.manifest, "spec", "limits"), labels.GPU), asked[pool.urn]
        together = sum(gpus for _, gpus in sets)
        if limit and together > limit:
            ask = f"{', '.join(path for path, _ in sets)} {'ask' if len(sets) > 1 else 'asks'} for {together}"
            advice = LIMIT_ADVICE if pool.is_part_of_ours else "raise its limit"
            yield Fault(f"{pool.path}: spec.limits", f"ends at {limit} GPUs, and {ask}", None, "", advice, _level(pool))


def _on_no_pool(path: str, selector: Mapping[str, Any], pools: Sequence[Declared]) -> Fault:
    named = next((p for p in pools if refused(p, selector) != labels.POOL), None)
    if named is None:
        made = ", ".join(sorted({str(v) for p in pools for v in values_of(p, labels.POOL) or ()}))
        message = f"is no pool of this program, which makes {made}"
        return Fault(
            path, message, selector[labels.POOL], "", "give NodePools this model, too, or leave it where another stack makes the pool", Level.WARNING
        )
    key = refused(named, selector)
    message = f"selects {key} {selector[key]}, and {named.path} of {named.owner} has {', '.join(map(str, values_of(named, key) or ()))}"
    return Fault(path, message, None, "", "give the pools and the model the same one", _level(named))


def _level(pool: Declared) -> Level | None:
    """Whoever writes pools by hand may have others for the same pods elsewhere; of ours each is made once in a cluster."""
    return None if pool.is_part_of_ours else Level.WARNING


def _gpus(declared: Declared) -> int:
    """GPUs of all groups of a set; none where the number of groups is left to an autoscaler."""
    pods = list(pod_templates([declared]))
    size = amount(mapping_at(declared.manifest, "spec", "leaderWorkerTemplate"), "size") or 1
    leader, worker = pods[0].asks_for(labels.GPU), pods[-1].asks_for(labels.GPU)
    return (amount(mapping_at(declared.manifest, "spec"), "replicas") or 0) * (leader + (size - 1) * worker)
