"""Why AWS did not answer, in words that say what to do."""

from __future__ import annotations

from ..rules.looked_up import Failure, LookUp

DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "NotAuthorized", "Client.UnauthorizedOperation"})
THROTTLED = frozenset(
    {"Throttling", "ThrottlingException", "ThrottledException", "RequestLimitExceeded", "TooManyRequestsException", "RequestThrottled", "SlowDown"}
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
INVALID = frozenset({"InvalidClientTokenId", "UnrecognizedClientException", "AuthFailure", "InvalidAccessKeyId", "SignatureDoesNotMatch"})
OPT_IN = frozenset({"OptInRequired", "PendingVerification", "Blocked"})
"""Codes of AWS's errors (EC2 API: error codes; Service Quotas and Price List: common errors)."""
NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "NoAuthTokenError"})
LOGIN = frozenset({"SSOTokenLoadError", "UnauthorizedSSOTokenError", "TokenRetrievalError", "SSOError", "LoginTokenLoadError"})
UNREACHABLE = frozenset(
    {"EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "ProxyConnectionError", "SSLError"}
)
"""Names of botocore's exceptions."""
LOG_IN = "log in, or set AWS_PROFILE"


def explain(look_up: LookUp, action: str, problem: Exception, region: str) -> Failure:
    """The failure that an exception of botocore is. Its own text can hold account and role, which a plan may show, but never a key."""
    response = getattr(problem, "response", None)
    if response is None:
        return _local(look_up, action, problem, region)
    code = str(response.get("Error", {}).get("Code", "")) or type(problem).__name__
    if code in DENIED:
        return Failure(look_up, action, f"the action is not allowed ({code})", f"allow {action}; docs/look-ups.md has the whole policy")
    if code in THROTTLED:
        return Failure(look_up, action, f"AWS throttles the action ({code})", "try again in a minute")
    if code in EXPIRED:
        return Failure(look_up, action, f"the credentials have expired ({code})", LOG_IN)
    if code in INVALID:
        allowed = f"AWS does not know the credentials in {region} ({code})"
        return Failure(look_up, action, allowed, f"enable {region} for the account if it is one that must be opted into, or {LOG_IN}")
    if code in OPT_IN:
        return Failure(look_up, action, f"{region} is not enabled for the account ({code})", f"enable {region} in the account's settings")
    return Failure(look_up, action, f"AWS answered {code}", "see the AWS documentation of this error")


def _local(look_up: LookUp, action: str, problem: Exception, region: str) -> Failure:
    kinds = {kind.__name__ for kind in type(problem).__mro__}
    if kinds & NO_CREDENTIALS:
        return Failure(look_up, action, "there are no credentials of AWS", LOG_IN)
    if kinds & LOGIN:
        return Failure(look_up, action, "the login of AWS IAM Identity Center is missing or has ended", "aws sso login")
    if kinds & UNREACHABLE:
        return Failure(look_up, action, f"AWS in {region} is not reached ({type(problem).__name__})", "look at network and proxy")
    return Failure(look_up, action, f"botocore says {type(problem).__name__}", "look at the AWS configuration of this machine")
