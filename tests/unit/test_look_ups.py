"""Look-ups at AWS: answers become findings, failures name what is missing, and nothing else of an environment changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_answers import Aws, answer
from botocore.exceptions import BotoCoreError, ConnectTimeoutError, SSOTokenLoadError
from disagg_serving.errors import Finding, Level, ToolError
from disagg_serving.lookups import ACTIONS, look_up, open_session
from disagg_serving.lookups.failures import NO_CREDENTIALS
from disagg_serving.planning.shapes import Layout
from disagg_serving.rules.acceptance import unused_acceptances
from disagg_serving.rules.evaluation import judge
from disagg_serving.rules.looked_up import LookedUp, questions_of
from factories import ROOT, aggregated, environment, existing_cluster, layout, model, role
from moto import mock_aws

NOW = datetime(2026, 11, 30, tzinfo=UTC)
GLM = {"model": "glm-5-fp8", "maxModelLen": 131072, "kvCacheDtype": "fp8"}
P5 = ("p5.48xlarge", "us-east-1a")


@pytest.fixture(autouse=True)
def _no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the credentials of this machine nor its metadata service have a part in this, and retries do not wait."""
    for key in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setattr("time.sleep", lambda _: None)


def reserved(nodes: int = 2, *ids: str) -> Layout:
    """GLM-5 on reserved nodes."""
    capacity = {"type": "reserved", "reservationIds": list(ids or ("cr-0123456789abcdef0",)), "nodes": nodes}
    return layout(environment(aggregated(**GLM, server=role(tensorParallel=8, pipelineParallel=2, capacity=capacity))))


def on_demand() -> Layout:
    """Two nodes, one a role."""
    return layout(environment(model(prefill=role(tensorParallel=8), decode=role(tensorParallel=8))))


def spot(kind: str = "p5.48xlarge") -> Layout:
    """A model on spot nodes."""
    return layout(environment(aggregated(server=role(instanceType=kind, capacity={"type": "spot"}))))


def asked(wanted: Layout, aws: Aws) -> LookedUp:
    """All answers about a layout."""
    questions = questions_of(wanted)
    assert questions is not None
    return look_up(questions, aws.session, NOW)


def told(wanted: Layout, aws: Aws, rule: str) -> list[Finding]:
    """What one rule says about the answers."""
    return [f for f in judge(wanted, asked(wanted, aws)) if f.id == rule]


def good(**reservation: Any) -> Aws:
    """An account in which everything is in order."""
    return Aws().quota(1000).offers(P5, ("p5.48xlarge", "us-east-1b")).prices(55.04).reserves(**reservation)


def test_an_account_in_order() -> None:
    """Where everything is as planned the findings are information only, and each look-up has said something."""
    for wanted in (on_demand(), reserved()):
        found = judge(wanted, asked(wanted, good()))
        assert {f.level for f in found} == {Level.INFO}
        assert {f.id for f in found} >= {"look-up-price"}
    assert "look-up-quota" in {f.id for f in judge(on_demand(), asked(on_demand(), good()))}
    assert "look-up-reservation" in {f.id for f in judge(reserved(), asked(reserved(), good()))}


def test_quota_is_compared_with_all_pools() -> None:
    """On-demand P instances of all pools count together; a smaller quota is an error that says what to ask AWS for."""
    (fault,) = told(on_demand(), Aws().quota(192).offers(P5).prices(None), "look-up-quota")
    assert (fault.level, fault.path, fault.value) == (Level.ERROR, "models", "192")
    assert fault.allowed == "384 or more"
    assert "--quota-code L-417A185B --desired-value 384" in fault.fix


@pytest.mark.parametrize(("quota", "kind", "level"), [(768, "default", "info"), (767, "default", "warning"), (192, "capacity-block", "info")])
def test_what_is_reserved_counts_beside_what_may_be_started(quota: float, kind: str, level: str) -> None:
    """A reservation on demand of three nodes takes its part of the quota, though perhaps of another account's; a Capacity Block takes none."""
    capacity = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 3}
    mixed = layout(environment(model(prefill=role(tensorParallel=8), decode=role(tensorParallel=8, replicas=3, capacity=capacity))))
    aws = Aws().quota(quota).offers(P5).prices(None).reserves(totalInstanceCount=3, reservationType=kind)
    (found,) = told(mixed, aws, "look-up-quota")
    assert str(found.level) == level
    assert ("reservations on demand count 576" in found.message) is (kind == "default")
    assert ("--desired-value 768" in found.fix) is (level == "warning")


def test_reserved_nodes_ask_no_quota() -> None:
    """What is reserved has counted against the quota when it was reserved."""
    aws = good()
    assert asked(reserved(), aws).quotas == {}
    assert "GetServiceQuota" not in aws.asked


def test_spot_has_a_quota_of_its_own() -> None:
    """Spot of the p5 family counts against its own quota; for a family whose quota is not known here that is said instead."""
    aws = Aws().quota(0).offers(P5).spot(15.5)
    found = asked(spot(), aws)
    assert set(found.quotas) == {"L-C4BD4855"}
    assert [f.level for f in judge(spot(), found) if f.id == "look-up-quota"] == [Level.ERROR]
    (price,) = [f for f in judge(spot(), found) if f.id == "look-up-price"]
    assert "costs 15.5 USD/h on spot in us-east-1a" in price.message
    other = Aws().offers(("p6-b200.48xlarge", "us-east-1a")).spot(1)
    (unknown,) = told(spot("p6-b200.48xlarge"), other, "look-up-quota")
    assert (unknown.level, unknown.fix) == (Level.INFO, "see Service Quotas")


def test_a_default_quota_counts_where_the_account_has_none_of_its_own() -> None:
    """Service Quotas knows no value of the account's own until it was changed once; then AWS's default is asked."""
    aws = Aws().refuses("service-quotas", "GetServiceQuota", "NoSuchResourceException").offers(P5).prices(None)
    aws.json("service-quotas", "GetAWSDefaultServiceQuota", {"Quota": {"Value": 0}})
    found = asked(on_demand(), aws)
    assert found.quotas == {"L-417A185B": 0}
    assert not found.failures


def test_offerings_name_the_zones_that_there_are() -> None:
    """A type that the zone does not have is an error with the zones of the region that have it, or none."""
    (fault, _) = told(on_demand(), Aws().quota(1000).offers(("p5.48xlarge", "us-east-1c")).prices(None), "look-up-offering")
    assert (fault.path, fault.allowed) == ("models[0].decode.instanceType", "us-east-1c")
    assert "is not offered in us-east-1a" in fault.message
    (fault, _) = told(on_demand(), Aws().quota(1000).offers().prices(None), "look-up-offering")
    assert (fault.allowed, fault.fix) == ("no zone of this region", "use another region or instance type")


@pytest.mark.parametrize(
    ("fields", "level", "says"),
    [
        ({"state": "expired"}, Level.ERROR, "is expired"),
        ({"state": "cancelled"}, Level.ERROR, "is cancelled"),
        ({"state": "scheduled", "startDate": "2026-12-05T11:30:00Z"}, Level.WARNING, "is scheduled and begins 2026-12-05 11:30 UTC"),
        ({"instanceType": "p5en.48xlarge"}, Level.ERROR, "is of p5en.48xlarge"),
        ({"availabilityZone": "us-east-1b"}, Level.ERROR, "is in us-east-1b"),
        ({"totalInstanceCount": 1}, Level.ERROR, "is more than the 1 instances"),
        ({"endDate": "2026-12-07T11:30:00Z"}, Level.WARNING, "ends 2026-12-07 11:30 UTC; then its instances count as on-demand ones"),
        (
            {"endDate": "2026-12-07T11:30:00Z", "reservationType": "capacity-block"},
            Level.WARNING,
            "EC2 ends its instances 30 minutes before",
        ),
        ({"endDate": "2027-05-07T11:30:00Z"}, Level.INFO, "ends 2027-05-07 11:30 UTC"),
        ({}, Level.INFO, "is active, with 1 of 2 instances free"),
    ],
)
def test_reservations(fields: dict[str, Any], level: Level, says: str) -> None:
    """State, type, zone, size and end of a reservation are each judged."""
    found = told(reserved(), good(**fields), "look-up-reservation")
    assert any(f.level is level and says in f.sentence() for f in found), [f.sentence() for f in found]
    assert max((f.level for f in found), key=[Level.INFO, Level.WARNING, Level.ERROR].index) is level


def test_a_reservation_that_is_not_there() -> None:
    """An id that the account does not know is an error, and no failure of the look-up."""
    aws = Aws().offers(P5).prices(None).refuses("ec2", "DescribeCapacityReservations", "InvalidCapacityReservationId.NotFound")
    (fault,) = told(reserved(), aws, "look-up-reservation")
    assert (fault.level, fault.value) == (Level.ERROR, "cr-0123456789abcdef0")
    assert not asked(reserved(), aws).failures


def test_reservations_add_up() -> None:
    """Several reservations of a pool hold its nodes together."""
    assert not [f for f in told(reserved(4, "cr-0123456789abcdef0", "cr-0123456789abcdef1"), good(), "look-up-reservation") if f.level is Level.ERROR]


def test_pools_that_share_reservations() -> None:
    """What several pools may take together is compared with what their reservations hold."""
    capacity = {"type": "reserved", "reservationIds": ["cr-0123456789abcdef0"], "nodes": 1}
    both = {side: role(tensorParallel=8, capacity=capacity) for side in ("prefill", "decode")}
    wanted = layout(environment(model(**both)))
    assert not [f for f in told(wanted, good(), "look-up-reservation") if f.level is Level.ERROR]
    (fault,) = [f for f in told(wanted, good(totalInstanceCount=1), "look-up-reservation") if f.level is Level.ERROR]
    assert fault.value == "2, by pools decode-p5-48xlarge-reserved, prefill-p5-48xlarge-reserved together"


@pytest.mark.parametrize(
    ("listed", "level", "says"),
    [(55.04, Level.INFO, "as the catalogue said on 2026-07-20"), (60.544, Level.WARNING, "+10.0% against the catalogue's 55.04 of 2026-07-20")],
)
def test_prices(listed: float, level: Level, says: str) -> None:
    """A list price that differs from the catalogue's is a warning; the plan's own cost stays what it was."""
    (fault, _) = told(on_demand(), Aws().quota(1000).offers(P5).prices(listed), "look-up-price")
    assert fault.level is level
    assert says in fault.message


def test_a_type_without_a_list_price() -> None:
    """An empty list is no failure and no finding."""
    assert told(on_demand(), Aws().quota(1000).offers(P5).prices(None), "look-up-price") == []


CALLS = {
    ("service-quotas", "GetServiceQuota"): ("servicequotas:GetServiceQuota", on_demand),
    ("ec2", "DescribeInstanceTypeOfferings"): ("ec2:DescribeInstanceTypeOfferings", on_demand),
    ("ec2", "DescribeCapacityReservations"): ("ec2:DescribeCapacityReservations", reserved),
    ("pricing", "GetProducts"): ("pricing:GetProducts", on_demand),
    ("ec2", "DescribeSpotPriceHistory"): ("ec2:DescribeSpotPriceHistory", spot),
}
CODES = {
    "AccessDeniedException": "is not allowed",
    "UnauthorizedOperation": "is not allowed",
    "ThrottlingException": "AWS throttles",
    "RequestLimitExceeded": "AWS throttles",
    "ExpiredTokenException": "have expired",
    "UnrecognizedClientException": "does not know the credentials in us-east-1",
    "OptInRequired": "us-east-1 is not enabled",
    "InternalFailure": "answered InternalFailure",
}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", CALLS, ids=lambda c: c[1])
def test_each_failure_names_its_look_up_and_action(call: tuple[str, str], code: str) -> None:
    """A refusal is one warning with the IAM action, and the other look-ups are answered all the same."""
    action, make = CALLS[call]
    aws = Aws()
    aws.refuses(*call, code)  # the first handler that answers wins
    aws.quota(1000).offers(P5).prices(55.04).reserves().spot(15)
    wanted = make()
    found = asked(wanted, aws)
    (failure,) = found.failures
    assert (failure.action, action in ACTIONS[failure.look_up]) == (action, True)
    assert CODES[code] in failure.problem
    (fault,) = [f for f in judge(wanted, found) if f.id == "look-up-failed"]
    assert (fault.level, fault.path) == (Level.WARNING, "lookUps")
    assert f"{failure.look_up} ({action}) could not be looked up" in fault.message
    assert not [f for f in judge(wanted, found) if f.level is Level.ERROR]


@pytest.mark.parametrize(
    ("problem", "says"),
    [
        (ConnectTimeoutError(endpoint_url="https://ec2"), "AWS in us-east-1 is not reached (ConnectTimeoutError)"),
        (SSOTokenLoadError(error_msg="x"), "IAM Identity Center"),
        (BotoCoreError(), "botocore says BotoCoreError"),
    ],
)
def test_a_network_or_a_login_that_is_missing(problem: BotoCoreError, says: str) -> None:
    """What goes wrong on this side is told in the same way."""

    def fail(_: Any) -> Any:
        raise problem

    aws = Aws().replies("ec2", "DescribeInstanceTypeOfferings", fail).quota(1000).prices(None)
    (failure,) = asked(on_demand(), aws).failures
    assert (failure.look_up, says in failure.problem) == ("offering", True)


def test_without_credentials_there_is_one_warning() -> None:
    """No credentials are one warning, not one a question, and AWS is not asked."""
    questions = questions_of(on_demand())
    assert questions is not None
    found = look_up(questions, boto3.Session(region_name="us-east-1"), NOW)
    assert [(f.look_up, f.problem) for f in found.failures] == [("credentials", "there are no credentials of AWS")]
    assert [f.level for f in judge(on_demand(), found)] == [Level.WARNING]
    assert "NoCredentialsError" in NO_CREDENTIALS


def test_a_profile_that_is_missing() -> None:
    """The stack's aws:profile that this machine does not have is told by name."""
    with pytest.raises(ToolError, match="gone"):
        open_session("us-east-1", "gone")


def test_where_no_pools_are_made_nothing_is_asked() -> None:
    """On nodes of somebody else there is nothing to look up."""
    nodes = existing_cluster(aggregated(server=role(nodeSelector={"pool": "x"})), autoMode=False)
    assert questions_of(layout(nodes)) is None


@mock_aws
@pytest.mark.parametrize("make", [on_demand, spot])
def test_against_moto(make: Callable[[], Layout]) -> None:
    """What moto implements, offerings and spot prices, it answers out of its own copy of AWS's data; it has no quotas of EC2 and no price list."""
    aws = Aws().quota(1000).prices(None)
    found = asked(make(), aws)
    assert not found.failures
    assert aws.asked == ["GetServiceQuota", *(["GetProducts"] if make is on_demand else [])]
    assert found.zones["p5.48xlarge"]
    assert all(zone.startswith("us-east-1") for zone in found.zones["p5.48xlarge"])
    assert set(found.spot) == ({"p5.48xlarge"} if make is spot else set())


def test_requests_are_those_that_aws_documents() -> None:
    """What goes over the wire asks for on-demand Linux in the region, and for the zone's own spot price."""
    sent: dict[str, str] = {}

    def keep(request: Any) -> Any:
        sent["body"] = request.body if isinstance(request.body, str) else request.body.decode()
        sent["url"] = request.url
        return answer(200, json.dumps({"PriceList": []}), "application/x-amz-json-1.1")

    asked(on_demand(), Aws().quota(1).offers(P5).replies("pricing", "GetProducts", keep))
    filters = {f["Field"]: f["Value"] for f in json.loads(sent["body"])["Filters"]}
    assert filters["instanceType"] == "p5.48xlarge"
    assert (filters["regionCode"], filters["operatingSystem"], filters["tenancy"], filters["capacitystatus"]) == (
        "us-east-1",
        "Linux",
        "Shared",
        "Used",
    )
    assert sent["url"].startswith("https://api.pricing.us-east-1.")


def test_the_policy_of_the_docs_is_what_is_asked() -> None:
    """docs/look-ups.md holds one policy with every action that a look-up needs, and no other."""
    text = (ROOT / "docs/look-ups.md").read_text(encoding="utf-8")
    (policy,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    (statement,) = json.loads(policy)["Statement"]
    assert statement["Effect"] == "Allow"
    assert sorted(statement["Action"]) == sorted(a for actions in ACTIONS.values() for a in actions)


def test_an_error_may_be_accepted() -> None:
    """Errors of look-ups can be accepted like others; that nothing was looked up does not make the acceptance a useless one."""
    accepting = environment(
        model(prefill=role(tensorParallel=8), decode=role(tensorParallel=8)), accept={"look-up-quota": "the increase is under way"}
    )
    wanted = layout(accepting)
    (fault,) = told(wanted, Aws().quota(0).offers(P5).prices(None), "look-up-quota")
    assert (fault.level, fault.accepted) == (Level.WARNING, "the increase is under way")
    assert unused_acceptances([], wanted.spec.accept) == []
