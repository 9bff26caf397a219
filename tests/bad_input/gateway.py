"""Gateways, routing, network policies and weights that break a rule."""

from __future__ import annotations

from typing import Any

from factories import aggregated, environment, existing_cluster, model

from .case import OLD_ENGINE, Case, network, one

GATEWAY, ROUTING, WEIGHTS = "models[0].gateway", "models[0].gateway.routing", "models[0].weights"
CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/a"
ALIAS = "arn:aws:kms:us-east-1:123456789012:alias/a"
S3 = {"bucket": "acme-weights"}


def gateway(**overrides: Any) -> dict[str, Any]:
    """An environment whose one model, with prefill and decode, has this gateway."""
    return one(gateway=overrides)


def routing(**overrides: Any) -> dict[str, Any]:
    """The same with this routing."""
    return gateway(routing=overrides)


def weights(**overrides: Any) -> dict[str, Any]:
    """An environment whose one model has these weights."""
    return one(weights=overrides)


def two(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two aggregated models."""
    return environment(aggregated(name="a", **first), aggregated(name="b", **second))


GATEWAY_CASES = [
    Case("public without ranges", gateway(public=True), f"{GATEWAY}.sourceRanges", allowed="networks of your clients", fix="remove public"),
    Case("public without TLS", gateway(public=True), f"{GATEWAY}.certificateArn", allowed="a certificate of ACM", fix="add it"),
    Case("public without a key", gateway(public=True), f"{GATEWAY}.apiKeySecret", allowed="a secret key such as apiKey", fix="add it"),
    Case("source range that is none", gateway(sourceRanges=["everyone"]), f"{GATEWAY}.sourceRanges[0]", "everyone", "203.0.113.0/24"),
    Case("certificate that is none", gateway(certificateArn="cert"), f"{GATEWAY}.certificateArn", "cert", "arn:aws:acm:region"),
    Case("setting of a gateway that is off", gateway(enabled=False, public=True), f"{GATEWAY}.public", says="enabled is false", fix="remove it"),
    Case("idle timeout with TLS", gateway(certificateArn=CERTIFICATE, idleTimeoutSeconds=900), f"{GATEWAY}.idleTimeoutSeconds", "900", "350"),
    Case("idle timeout beyond AWS", gateway(idleTimeoutSeconds=9000), f"{GATEWAY}.idleTimeoutSeconds", "9000", "6000"),
    Case("misspelt gateway key", gateway(publik=True), f"{GATEWAY}.publik", allowed="public", fix="did you mean public"),
    Case(
        "record without AWS",
        existing_cluster(model(gateway={"dns": {"zoneId": "Z1", "name": "m.example.com"}})),
        f"{GATEWAY}.dns",
        "m.example.com",
        "no record",
        "by name or stackReference",
    ),
    Case(
        "one record for two models",
        two({"gateway": {"dns": {"zoneId": "Z1", "name": "m.example.com"}}}, {"gateway": {"dns": {"zoneId": "Z1", "name": "m.example.com"}}}),
        "models[1].gateway.dns.name",
        "m.example.com",
        "a name of its own",
    ),
    Case(
        "by prefix without a bound", routing(disaggregation="prefixBased"), f"{ROUTING}.nonCachedTokens", allowed="a number of tokens", fix="use 512"
    ),
    Case("bound without by prefix", routing(nonCachedTokens=5), f"{ROUTING}.nonCachedTokens", "5", "without it", "set disaggregation: prefixBased"),
    Case("profile of another mode", routing(server=[]), f"{ROUTING}.server", says="with prefill and decode", fix="remove it"),
    Case(
        "profile of P/D in server mode",
        environment(aggregated(gateway={"routing": {"decode": []}})),
        f"{ROUTING}.decode",
        says="in server mode",
        fix="remove it",
    ),
    Case(
        "misspelt plugin",
        routing(prefill=[{"type": "queue-scorrer"}]),
        f"{ROUTING}.prefill[0].type",
        "queue-scorrer",
        "prefix-cache-scorer",
        "use queue-scorer",
    ),
    Case("plugin of another kind", routing(decode=[{"type": "disagg-profile-handler"}]), f"{ROUTING}.decode[0].type", "disagg", "a filter or scorer"),
    Case("experimental plugin", routing(decode=[{"type": "session-affinity-scorer"}]), f"{ROUTING}.decode[0].type", "session", "stability beta"),
    Case("weight of a filter", routing(decode=[{"type": "decode-filter", "weight": 2}]), f"{ROUTING}.decode[0].weight", "2", "without it"),
    Case(
        "misspelt parameter",
        routing(decode=[{"type": "active-request-scorer", "parameters": {"idleTreshold": 1}}]),
        f"{ROUTING}.decode[0].parameters.idleTreshold",
        "",
        "idleThreshold",
        "did you mean idleThreshold",
    ),
    Case(
        "parameter of another type",
        routing(decode=[{"type": "active-request-scorer", "parameters": {"idleThreshold": "1"}}]),
        f"{ROUTING}.decode[0].parameters.idleThreshold",
        "1",
        "an integer",
    ),
    Case("scorer without its producer", routing(prefill=[{"type": "token-load-scorer"}]), f"{ROUTING}.prefill[0].type", "token", "inflight-load"),
    Case("unknown router", environment(model(), router={"version": "llm-d-router-9"}), "router.version", "llm-d-router-9", "llm-d-router-0.10.0"),
    Case("mirror with a scheme", environment(imageSources={"docker.io": "https://m"}), "imageSources.docker.io", "https://m", "host and path"),
    Case(
        "Services inside the VPC",
        environment(cluster={"endpoint": {"publicAccessCidrs": ["203.0.113.0/24"]}, "serviceCidr": "10.0.0.0/20"}),
        "cluster.serviceCidr",
        "10.0.0.0/20",
        "a range apart from it",
        "use 10.100.0.0/16",
        says="overlaps the VPC's 10.0.0.0/16",
    ),
    Case("default Services inside the VPC", network(cidr="172.20.0.0/16"), "cluster.serviceCidr", "172.20.0.0/16", "apart from it"),
    Case("public Services", environment(cluster={"serviceCidr": "8.8.0.0/16"}), "cluster.serviceCidr", "8.8.0.0/16", "a private network, /12 to /24"),
    Case("VPC network that is none", environment(networkPolicy={"vpcCidrs": ["x"]}), "networkPolicy.vpcCidrs[0]", "x", "203.0.113.0/24"),
    Case("a VPC that is everything", environment(networkPolicy={"vpcCidrs": ["0.0.0.0/1"]}), "networkPolicy.vpcCidrs[0]", "0.0.0.0/1", "the VPC's"),
    Case("weights from anywhere", environment(networkPolicy={"weightsCidrs": ["0.0.0.0/0"]}), "networkPolicy.weightsCidrs[0]", "0.0.0.0/0", "/8"),
    Case("mirror without a place", weights(mirror=True, revision="abc"), f"{WEIGHTS}.s3", allowed="bucket", fix="remove mirror"),
    Case("mirror of a floating head", weights(mirror=True, s3=S3), f"{WEIGHTS}.revision", says="floating head", allowed="a commit", fix="add it"),
    Case("cache of what streams", weights(s3=S3, cache="node"), f"{WEIGHTS}.cache", "node", "pod", "remove it"),
    Case("token for S3", weights(s3=S3, tokenKey="hfToken"), f"{WEIGHTS}.tokenKey", "hfToken", "without it", "remove it"),
    Case("bucket that is none", weights(s3={"bucket": "Acme_Weights"}), f"{WEIGHTS}.s3.bucket", "Acme_Weights", "small letters"),
    Case("alias of a key", weights(s3={**S3, "kmsKeyArn": ALIAS}), f"{WEIGHTS}.s3.kmsKeyArn", "alias", ":key/id"),
    Case(
        "image without a streamer",
        environment(aggregated(weights={"s3": S3}, engine="old", model="qwen3-32b", maxModelLen=4096), catalogDirs=["."]),
        "models[0].engine",
        "old",
        "vllm-0.33.0-efa",
        files={"engines/old.yaml": {**OLD_ENGINE, "version": "0.33.0"}},
    ),
    Case(
        "bucket made once and once not",
        two({"weights": {"s3": {**S3, "create": True}}}, {"weights": {"s3": S3}}),
        "models[1].weights.s3.create",
        "false",
        "true",
        "use true",
    ),
    Case(
        "bucket without AWS",
        existing_cluster(model(weights={"s3": {**S3, "create": True}})),
        f"{WEIGHTS}.s3.create",
        "true",
        "false",
        says="a cluster by kubeconfig does without",
    ),
    Case(
        "API key in plain text",
        {"config": {"aws:region": "us-east-1", "disagg-serving:environment": gateway(apiKeySecret="apiKey"), "disagg-serving:apiKey": "k"}},
        f"{GATEWAY}.apiKeySecret",
        "apiKey",
        "an encrypted value",
        "revoke it",
    ),
]
