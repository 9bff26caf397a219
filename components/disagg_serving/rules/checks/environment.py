"""Rules about network, cluster, node life, names and secrets."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from ... import labels
from ...catalog.kubernetes import oldest_in_support, supported
from ...corrections import Correction
from ...credentials import AWS_KEYS
from ...errors import Level, did_you_mean
from ...forecast.cost import extended_price, today
from ...phrases import join, say, say_key
from ...pins import KUBERNETES, LWS_MINIMUM_KUBERNETES, NEWEST_KUBERNETES
from ...place import Place
from ...planning.drafts import checkpoint_gb
from ...planning.pairs import pairs_of
from ...planning.startup import startup_budget_seconds
from ...spec import EndpointSpec
from ...spec.network import partition_of, region_of
from ..documents import AWS_RUNS, EC2, EKS, IAM, KARPENTER, LWS, OBJECT_NAMES
from ..registry import Fault, Stage, Subject, remove, rule, rules, use

MAX_NODE_HOURS, SECONDS_AN_HOUR = 504, 3600
RESTART_SECONDS = 240
"""What a group takes besides its drain: the pods' sleep before it, their end, and the controller's and scheduler's turns (our judgement)."""
LWS_NAME_LIMIT = 51
IAM_NAME_LIMIT = 64
LONGEST_KEY = 40
CLUSTER, ADOPTED, ZONES = map(Place.parse, ("cluster", "existingCluster", "network.zones"))
LOOKS_SECRET = re.compile(r"^(hf_|sk-|sk_|pk-|ghp_|xox|AKIA|ASIA)|[0-9][A-Za-z]+[0-9][A-Za-z]+[0-9][A-Za-z]+[0-9]")


@rule("cluster-source", Level.ERROR, Stage.FORM, "our choice: docs/how-to/existing-cluster.md", firm=True, parts=("cluster",))
def cluster_source(s: Subject) -> Iterator[Fault]:
    """A cluster is either made (`cluster`) or adopted (`existingCluster`), and an adopted one is found in exactly one way."""
    existing = s.spec.existing_cluster
    if existing is None:
        return
    if s.spec.cluster is not None:
        either = [remove("existingCluster"), remove("cluster")]
        yield Fault("existingCluster", say("stands beside {}", CLUSTER), None, say("one of {}, {}", CLUSTER, ADOPTED), ways=either)
    ways = {"kubeconfig": existing.kubeconfig, "name": existing.name, "stackReference": existing.stack_reference}
    given = [say_key(key) for key, value in ways.items() if value]
    if len(given) != 1:
        message = "are too many ways to find the cluster" if given else "does not say where the cluster is"
        yield Fault("existingCluster", message, join(", ", given) or None, say("one of {}", join(", ", map(say_key, ways))), "give one of them")
    if existing.context and not existing.kubeconfig:
        path = "existingCluster.context"
        yield Fault(path, "belongs to a kubeconfig", existing.context, "with kubeconfig", "add kubeconfig", ways=[remove(path)])
    if existing.kubeconfig and existing.auto_mode:
        for key, value in (("nodeRole", existing.node_role), ("securityGroupIds", existing.security_group_ids)):
            if not value:
                place, other = f"existingCluster.{key}", [use("existingCluster.autoMode", False)]
                yield Fault(place, "is required with kubeconfig and Auto Mode", None, "what the NodeClass names", "add it", ways=other)


@rule(
    "network-zones",
    Level.ERROR,
    Stage.FORM,
    f"{EC2}efa.html and {EKS}network-reqs.html",
    firm=True,
    presumes_made="network",
    parts=("network",),
)
def network_zones(s: Subject) -> Iterator[Fault]:
    """A made network has two or more zones of one region, GPU nodes are in one of them, and the region is the stack's."""
    network, made = s.spec.network, s.spec.network.existing is None and s.spec.existing_cluster is None
    if made:
        if len(network.zones) < 2:  # noqa: PLR2004
            yield Fault("network.zones", "has too few zones", network.zones or None, "two or more zones of the region", "add a zone")
        for zone, times in Counter(network.zones).items():
            if times > 1:
                yield Fault("network.zones", "stands there twice", zone, "each zone once", "remove it")
        if network.gpu_zone and network.zones and network.gpu_zone not in network.zones:
            ways = [use("network.gpuZone", *network.zones), remove("network.gpuZone")]
            yield Fault("network.gpuZone", say("is not one of {}", ZONES), network.gpu_zone, ", ".join(network.zones), "add the zone", ways=ways)
    elif s.spec.makes_pools and not network.zone:
        yield Fault("network.gpuZone", "is required", None, "the zone of the GPU subnets", "add it")
    regions = {region_of(z) for z in (*network.zones, *([network.gpu_zone] if network.gpu_zone else []))}
    if len(regions) > 1:
        yield Fault("network.zones", "span regions", ", ".join(sorted(regions)), "zones of one region", "name zones of one region")
    elif s.stack.region and regions and s.stack.region not in regions:
        yield Fault(
            "network.zones",
            f"is not aws:region {s.stack.region}",
            regions.pop(),
            f"zones of {s.stack.region}",
            "change the zones, or the region of the stack",
        )


@rule(
    "network-existing",
    Level.ERROR,
    Stage.FORM,
    "our choice: docs/how-to/existing-cluster.md",
    firm=True,
    presumes_made="network",
    parts=("existing network", "cluster"),
)
def network_existing(s: Subject) -> Iterator[Fault]:
    """An adopted network names what its cluster and GPU nodes need, and nothing that only a made one uses."""
    network = s.spec.network
    if network.existing is None:
        if s.spec.existing_cluster and s.spec.makes_pools and s.spec.existing_cluster.stack_reference is None:
            yield Fault(
                "network.existing",
                say("is required with {}", ADOPTED),
                None,
                say("{gpuSubnetIds} of the GPU nodes"),
                say("add {}", Place.parse("network.existing.gpuSubnetIds")),
            )
        return
    used = network.model_fields_set & {"cidr", "zones", "nat_gateways", "tags"}
    for key in sorted(used):
        name = type(network).model_fields[key].alias or key
        yield Fault(f"network.{name}", "has no effect on an existing network", None, "without it", ways=[remove(f"network.{name}")])
    if s.spec.existing_cluster is None:
        if not network.existing.vpc_id:
            yield Fault("network.existing.vpcId", "is required to make a cluster", None, "vpc-...", "add it")
        if len(network.existing.subnet_ids) < 2:  # noqa: PLR2004
            value = network.existing.subnet_ids or None
            yield Fault("network.existing.subnetIds", "has too few subnets for the control plane", value, "two or more, in two zones", "add them")


@rule(
    "creator-admin",
    Level.ERROR,
    Stage.FORM,
    "https://github.com/pulumi/pulumi-eks/blob/v4.4.0/nodejs/eks/cluster/cluster.ts and https://github.com/pulumi/pulumi-eks/issues/2373",
    presumes_made="cluster",
    parts=("cluster",),
)
def creator_admin(s: Subject) -> Iterator[Fault]:
    """Without creatorAdmin somebody else must be administrator, or nobody can reach the cluster that was just made."""
    cluster = s.spec.cluster
    if cluster and not cluster.creator_admin and not cluster.admin_role_arns:
        allowed = "the ARN of the role that runs pulumi up, at least"
        yield Fault("cluster.adminRoleArns", say("is empty while {creatorAdmin} is false"), None, allowed, "add it")


@rule("api-endpoint", Level.ERROR, Stage.FORM, f"{EKS}cluster-endpoint.html", presumes_made="cluster", parts=("cluster",))
def api_endpoint(s: Subject) -> Iterator[Fault]:
    """The API server is reachable by somebody, and open to the world only knowingly."""
    if s.spec.existing_cluster is not None:
        return
    endpoint = s.spec.cluster.endpoint if s.spec.cluster else None
    if endpoint and not endpoint.public_access and not endpoint.private_access:
        closed = say("{publicAccess} and {privateAccess} false")
        yield Fault("cluster.endpoint", "leave nobody who can reach the API server", closed, "one of them true")
    if endpoint:
        yield from _private_endpoint(endpoint)
    if endpoint is None or (endpoint.public_access and "0.0.0.0/0" in endpoint.public_access_cidrs):
        place = "cluster.endpoint.publicAccessCidrs"
        fix = say("set {} to your networks", Place.parse(place))
        yield Fault(place, "lets the whole internet try to log in", "0.0.0.0/0", "your networks", fix, Level.WARNING)


def _private_endpoint(endpoint: EndpointSpec) -> Iterator[Fault]:
    opened = {"privateAccessCidrs": endpoint.private_access_cidrs, "privateAccessSecurityGroupIds": endpoint.private_access_security_group_ids}
    if not endpoint.private_access:
        for key in (key for key, sources in opened.items() if sources):
            place, ways = f"cluster.endpoint.{key}", [remove(f"cluster.endpoint.{key}"), use("cluster.endpoint.privateAccess", True)]
            yield Fault(place, "has no effect without a private endpoint", None, say("without it, or {privateAccess}: true"), ways=ways)
    elif not endpoint.public_access and not any(opened.values()):
        place, message = "cluster.endpoint.privateAccessSecurityGroupIds", "let in nobody but the cluster's nodes: no deployer reaches the API server"
        yield Fault(place, message, None, "the deployer's security group", say("add it, or its network to {privateAccessCidrs}"), Level.WARNING)


@rule("kubernetes-version", Level.ERROR, Stage.FORM, f"{LWS}installation/", presumes_made="cluster", parts=("cluster",))
def kubernetes_version(s: Subject) -> Iterator[Fault]:
    """The LeaderWorkerSet controller and the pods' native sleep hook need Kubernetes 1.34 or newer."""
    version = tuple(int(part) for part in s.spec.kubernetes_version.split("."))
    where = "existingCluster" if s.spec.existing_cluster else "cluster"
    if version > NEWEST_KUBERNETES:
        newest = ".".join(map(str, NEWEST_KUBERNETES))
        message = f"was not known to EKS on {KUBERNETES.checked}"
        yield Fault(f"{where}.kubernetesVersion", message, s.spec.kubernetes_version, f"at most {newest}", level=Level.WARNING)
    if version < LWS_MINIMUM_KUBERNETES:
        oldest = ".".join(map(str, LWS_MINIMUM_KUBERNETES))
        path, lasting = f"{where}.kubernetesVersion", oldest_in_support(today()) or KUBERNETES.version
        yield Fault(path, "is too old", s.spec.kubernetes_version, f"{oldest} or newer", ways=[use(path, lasting)])


@rule("kubernetes-support", Level.WARNING, Stage.FORM, f"{EKS}kubernetes-versions.html", presumes_made="cluster", parts=("cluster",))
def kubernetes_support(s: Subject) -> Iterator[Fault]:
    """EKS goes on supporting the cluster's version at the standard price for two months at least."""
    support, day = supported().get(s.spec.kubernetes_version), today()
    if support is None or not support.is_ending(day):
        return
    ended, adopted, cluster = support.is_extended(day), s.spec.existing_cluster is not None, s.spec.cluster
    path = f"{'existingCluster' if adopted else 'cluster'}.kubernetesVersion"
    then, cost = "" if ended else "then ", f"{extended_price():.2f} USD an hour"
    if adopted:
        what = f"its control plane {then}costs {cost}, or EKS upgrades it, as its upgrade policy says"
    elif cluster is not None and cluster.upgrade_policy == "EXTENDED":
        what = f"its control plane {then}costs {cost}, until EKS upgrades it on {support.extended_until}"
    elif ended:
        what = say("EKS refuses to make it without {upgradePolicy}: EXTENDED, and upgrades one that runs")
    else:
        what = "EKS then upgrades the control plane by itself"
    message = say(f"{'left' if ended else 'leaves'} standard support on {support.standard_until}: {{}}", what)
    lasting = oldest_in_support(day) or KUBERNETES.version
    upgrade = "upgrade the cluster, one minor version at a time"
    ways = [] if adopted or lasting == support.version else [use(path, lasting)]
    yield Fault(path, message, support.version, f"{lasting} or newer", ways=ways, otherwise=upgrade)


@rule("node-life", Level.ERROR, Stage.FORM, f"{EKS}auto-security.html")
def node_life(s: Subject) -> Iterator[Fault]:
    """A node's age and its time to drain stay within the 21 days after which Auto Mode ends it by force."""
    pools = s.spec.node_pools
    if pools.expire_after_hours + pools.termination_grace_hours > MAX_NODE_HOURS:
        most, grace = MAX_NODE_HOURS - pools.termination_grace_hours, "nodePools.terminationGraceHours"
        allowed = say("at most {} with {terminationGraceHours} {}", most, pools.termination_grace_hours)
        if most < 1:
            allowed = say("less than {} together with {terminationGraceHours} {}", MAX_NODE_HOURS, pools.termination_grace_hours)
        path, least = "nodePools.expireAfterHours", MAX_NODE_HOURS - pools.expire_after_hours
        together: Correction = {path: 336, grace: 24}
        ways = [use(path, most) if most >= 1 else [], use(grace, least) if least >= 1 else [], [together] if most < 1 and least < 1 else []]
        yield Fault(path, "outlives Auto Mode's 504 hours", pools.expire_after_hours, allowed, ways=ways)
    slowest = max((startup_budget_seconds(served) for served in s.served), default=0) if s.spec.makes_pools else 0
    if pools.expire_after_hours * SECONDS_AN_HOUR <= slowest:
        message, least = f"ends nodes before a model has started, which may take {slowest / SECONDS_AN_HOUR:.1f} h", slowest // SECONDS_AN_HOUR + 1
        place = "nodePools.expireAfterHours"
        yield Fault(place, message, pools.expire_after_hours, f"at least {least}", ways=[use(place, least), remove(place)])


@rule("node-idle", Level.WARNING, Stage.FORM, f"{KARPENTER}concepts/disruption/")
def node_idle(s: Subject) -> Iterator[Fault]:
    """An empty node waits for its group to be made again, or each restart buys a new node and downloads the weights anew."""
    slowest = max((served.spec.drain_seconds for served in s.served), default=0) if s.spec.makes_pools else 0
    given, least = s.spec.node_pools.consolidate_after_minutes, math.ceil((slowest + RESTART_SECONDS) / 60)
    if s.served and given < least:
        place = "nodePools.consolidateAfterMinutes"
        message = f"removes nodes while a group is made again, whose last pod may drain for {slowest} s"
        yield Fault(place, message, given, f"at least {least}", ways=[use(place, least), remove(place)])


@rule("ready-wait", Level.WARNING, Stage.FORM, f"{AWS_RUNS}3.test_cases/pytorch/vllm/dsv3-uccl-nixl/README.md (30 to 60 minutes for 680 GB)")
def ready_wait(s: Subject) -> Iterator[Fault]:
    """A deployment that waits for its models waits as long as a start may take, or it fails while they load."""
    for served in s.served:
        asked, budget = served.spec.wait_for_ready_seconds, startup_budget_seconds(served)
        if asked is not None and asked < budget and not served.candidate:
            source = "S3" if served.weights_uri else "Hugging Face"
            message = f"is less than a start may take, {budget} s with {checkpoint_gb(served):g} GB from {source}"
            place = f"{served.path}.waitForReadySeconds"
            yield Fault(place, message, asked, f"{budget} or more", ways=[use(place, budget), remove(place)])


@rule("partition", Level.ERROR, Stage.FORM, f"{IAM}reference-arns.html", firm=True)
def partition(s: Subject) -> Iterator[Fault]:
    """ARNs are made for the partition in which the region lies."""
    zone = s.spec.network.zone
    if zone is None:
        return
    lies_in = partition_of(zone)
    place, cluster = ("existingCluster", s.spec.existing_cluster) if s.spec.existing_cluster else ("cluster", s.spec.cluster)
    stated = cluster.partition if cluster else "aws"
    if stated != lies_in:
        path = f"{place}.partition"
        yield Fault(path, f"is not that of {region_of(zone)}", stated, lies_in, ways=[use(path, lies_in)])


@rule("node-tags", Level.ERROR, Stage.FORM, f"{EKS}auto-learn-iam.html and {EKS}create-node-class.html", firm=True)
def node_tags(s: Subject) -> Iterator[Fault]:
    """Tags on nodes are ones that Auto Mode accepts, and the cluster's role may set them."""
    for key in s.spec.node_pools.tags:
        if key.startswith(labels.FORBIDDEN_TAG_PREFIXES) or key in labels.FORBIDDEN_TAGS:
            path = f"nodePools.tags.{key}"
            yield Fault(path, "is a tag that belongs to AWS or to Auto Mode", None, "tags of your own", ways=[remove(path)])
    if s.spec.node_pools.tags and s.spec.existing_cluster is not None:
        message = "need a policy that only the cluster's owner can add to its role; without it no node starts"
        fix = "add it there, as the EKS user guide says under custom tags of Auto Mode"
        yield Fault("nodePools.tags", message, None, "no tags", fix, Level.WARNING, [remove("nodePools.tags")])


@rule("names-unique", Level.ERROR, Stage.FORM, OBJECT_NAMES, firm=True, blocks_layout=True)
def names_unique(s: Subject) -> Iterator[Fault]:
    """No two models share a name or make objects of the same name."""
    first: dict[str, int] = {}
    for i, model in enumerate(s.spec.models):
        names = [model.name]
        for pair, _ in pairs_of(model):
            base = f"{model.name}-{pair.generation}" if pair.generation else model.name
            names += [base, *(f"{base}-{role}" for role in pair.roles if role != "server")]
        clash = next((first[n] for n in names if n in first), None)
        if clash is not None:
            other = s.spec.models[clash].name
            yield Fault(
                f"models[{i}].name",
                say("clashes with {} {}", Place(("models", clash, "name")), other),
                model.name,
                "names whose objects differ",
                "choose another",
            )
        for n in names:
            first.setdefault(n, i)


@rule("names-length", Level.ERROR, Stage.FORM, f"{LWS}troubleshooting/")
def names_length(s: Subject) -> Iterator[Fault]:
    """A LeaderWorkerSet's name leaves room for what the controllers append (`-0-1` and a revision hash)."""
    for of_pair, model in s.written():
        for role_name, role in model.roles.items():
            suffix = ("" if role_name == "server" else f"-{role_name}") + (f"-{model.generation}" if model.generation else "")
            limit = LWS_NAME_LIMIT - len(str(role.most_replicas - 1)) - len(suffix)
            if len(model.name) > limit:
                whose = f"generation {model.generation}'s {role_name}" if model.generation else role_name
                yield Fault(f"{of_pair}.name", f"is too long for the pods of {whose}", model.name, f"at most {limit} characters", "shorten it")


@rule("cluster-name", Level.ERROR, Stage.FORM, f"{IAM}reference_iam-quotas.html")
def cluster_name(s: Subject) -> Iterator[Fault]:
    """The cluster's name leaves room for the GPU role's, which carries the region as well."""
    if s.spec.existing_cluster is not None:
        return
    limit = IAM_NAME_LIMIT - (len(s.spec.node_role_name) - len(s.spec.cluster_name))
    if len(s.spec.cluster_name) > limit:
        path = "cluster.name" if s.spec.cluster and s.spec.cluster.name else "name"
        yield Fault(path, "is too long for the IAM role of its nodes", s.spec.cluster_name, f"at most {limit} characters", "shorten it")


@rule("secret-names", Level.ERROR, Stage.FORM, "our choice: docs/security.md", firm=True)
def secret_names(s: Subject) -> Iterator[Fault]:
    """Where the name of a secret key belongs stands a name, not the secret itself, and each secret has one of its own."""
    places: dict[str, str] = {}
    for path, key in s.spec.secret_keys():
        if LOOKS_SECRET.search(key) or len(key) > LONGEST_KEY:
            allowed = "the name of a secret key such as hfToken"
            fix = "revoke it, then run `pulumi config set --secret disagg-serving:hfToken` and write hfToken here"
            yield Fault(path, "looks like a secret itself", None, allowed, fix)
        kind = path.rsplit(".", 1)[1]
        if places.setdefault(key, kind) != kind:
            yield Fault(path, say("is also a {}: clients would know the token", say_key(places[key])), key, "a key of its own", "name another")


@rule("secret-keys", Level.WARNING, Stage.FORM, "https://www.pulumi.com/docs/iac/concepts/secrets/", firm=True)
def secret_keys(s: Subject) -> Iterator[Fault]:
    """A secret that the environment names exists in the stack file, encrypted, unless an ESC environment supplies it."""
    if s.stack.secrets is None:
        return
    for path, key in s.spec.secret_keys():
        if LOOKS_SECRET.search(key) or len(key) > LONGEST_KEY:
            continue
        if f"disagg-serving:{key}" in s.stack.plain:
            fix = f"revoke it, then run `pulumi config set --secret disagg-serving:{key}`"
            yield Fault(path, "stands in the stack file in plain text", key, "an encrypted value", fix, Level.ERROR)
        elif f"disagg-serving:{key}" not in s.stack.secrets:
            known = sorted(k.removeprefix("disagg-serving:") for k in s.stack.secrets if k.startswith("disagg-serving:"))
            allowed = ", ".join(known) or "none is set"
            fix = f"run `pulumi config set --secret disagg-serving:{key}`"
            yield Fault(path, "is not a secret of this stack", key, allowed, fix, Level.WARNING)


@rule("provider-credentials", Level.ERROR, Stage.FORM, "https://www.pulumi.com/registry/packages/aws/installation-configuration/", firm=True)
def provider_credentials(s: Subject) -> Iterator[Fault]:
    """Keys of an AWS account do not stand in the stack file in plain text, where everybody who reads the repository has them."""
    for key in AWS_KEYS:
        if key in s.stack.plain:
            fix = f"revoke it, then run `pulumi config set --secret {key}`, or take it out and let the environment or a profile give it"
            yield Fault(key, "stands in the stack file in plain text", None, "an encrypted value, or none", fix)


@rule("accepted", Level.ERROR, Stage.FORM, "our choice: docs/rules.md", firm=True)
def accepted(s: Subject) -> Iterator[Fault]:
    """`accept` names only errors of rules that are not firm, each with a reason."""
    known = {r.id: r for r in rules()} if s.spec.accept else {}
    open_to = [r.id for r in known.values() if not r.firm and r.level is Level.ERROR]
    for rule_id in s.spec.accept:
        if rule_id not in known:
            fix = did_you_mean(rule_id, list(known)) or "`disagg rules` lists them"
            yield Fault(f"accept.{rule_id}", "is no rule", rule_id, ", ".join(open_to), fix)
        elif known[rule_id].firm:
            path, message = f"accept.{rule_id}", "guards secrets or the form, so it cannot be accepted"
            yield Fault(path, message, rule_id, ", ".join(open_to), ways=[remove(path)])
