"""Rules about flags and variables that a person adds: what each means for what the project generates stands in the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...catalog.flags import LEVEL_FLAG, OPTIMIZATION, short_flags, versions
from ...catalog.verdicts import Verdict, variable, verdict_of
from ...credentials import carries_secret, holds_secret, names_secret
from ...errors import Level, SpecError
from ...phrases import say
from ...planning.arguments import Arguments, Said, as_data, read
from ...planning.command_line import OWNED, holds_anyway, is_set, why_ours
from ...planning.extras import arguments_of, roles_reached, written_arguments, written_variables
from ...planning.shapes import Served, group_size
from ...spec import ModelSpec
from ...spec.serving import RoleName
from ..documents import EKS, LIBFABRIC, VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use

SHORT_FLAG, LEVEL = re.compile(r"-[A-Za-z]"), re.compile(rf"{OPTIMIZATION}=?[0-3]")
EXPANDED_SECRET = re.compile(r"\$\((HF_TOKEN|VLLM_API_KEY)\)")
"""The kubelet puts a variable's value where its name stands like this."""
NCCL_DEBUG, NCCL_LEVELS = "NCCL_DEBUG", ("VERSION", "WARN", "INFO", "ABORT", "TRACE")
"""Levels of NCCL's log: extraEnv may ask for another one than WARN."""
OVERRIDES = "--hf-overrides"
OF_CONTEXT = frozenset({"rope_parameters", "rope_scaling", "rope_theta", "max_position_embeddings", "model_max_length"})
"""Overrides that change how long a request may be, and no size: rule max-model-len reads them."""
NOT_COUNTED = "changes memory or layout, which the memory forecast does not count"


@rule("extra-args", Level.ERROR, Stage.FORM, "docs/reference/engine-options.md", firm=True)
def extra_args(s: Subject) -> Iterator[Fault]:
    """Extra flags are whole (`--flag=value`), leave the project what it sets and relies on, and carry no secret."""
    for of_pair, model in s.written():
        version = _version(s, model)
        for place, arg in written_arguments(model):
            path, flag, roles = f"{of_pair}.{place}", arg.split("=", 1)[0], roles_reached(model, place)
            if SHORT_FLAG.match(arg) and not any(c.isspace() for c in flag):
                yield from _short(path, arg, version, model, roles)
            elif not arg.startswith("--") or not flag.strip("-") or any(c.isspace() for c in flag):
                shown = None if _may_hold_secret(arg) else arg
                yield Fault(path, "is not a flag", shown, "--flag or --flag=value, one an entry", "join flag and value with =")
            elif is_secret(arg):
                yield Fault(
                    path,
                    "looks like a secret, which would stand in the pod's manifest",
                    flag,
                    say("a secret key that {weights.tokenKey} names"),
                    "name a secret key instead",
                )
            elif EXPANDED_SECRET.search(arg):
                allowed = "flags without $(HF_TOKEN) and $(VLLM_API_KEY)"
                yield Fault(path, "expands a secret into the command line", arg, allowed, ways=[remove(path)])
            else:
                yield from refusals(path, arg, version, model, roles)


def refusals(path: str, arg: str, version: str, model: ModelSpec, roles: Sequence[RoleName] = ()) -> Iterator[Fault]:
    """Why a flag cannot be added to a model or to some of its roles, whatever its spelling: at most one fault."""
    found = [*read(version, arg)]
    ours = [one for one in found if is_set(one.option, model) and not holds_anyway(one, model, roles or [*model.roles])]
    if ours:
        instead = OWNED[ours[0].option] if len(ours) == 1 else "use the field of the model or role"
        yield Fault(path, why_ours(ours[0].option), arg, "flags without a field of their own", instead, ways=[] if instead else [remove(path)])
        return
    for one in found:
        if one.about.kind == "switch" and one.value is not None:
            continue  # which no parser takes
        about = verdict_of(one.option)
        if about is not None and not one.is_default and about.holds_for(one.plain):
            split = model.disaggregated and about.verdict == "pd-refused"
            if split or about.verdict == "breaks":
                # names of one flag cut short may be of several options
                where = say("prefill and decode without it") if split else "flags that leave it"
                ways = [] if about.instead else [remove(path)]
                yield Fault(path, say(about.reason), arg, _allowed(about, where), say(about.instead), ways=ways)
                return


def _allowed(about: Verdict, where: str) -> str:
    return f"{', '.join(v for v in about.passes if v)}, or without it" if any(about.passes) else where if about.refuses else "without it"


def _short(path: str, arg: str, version: str, model: ModelSpec, roles: Sequence[RoleName]) -> Iterator[Fault]:
    """A short flag with its long form, if there is one that may be added."""
    name, equals, value = arg.partition("=")
    head, dot, keys = name.partition(".")
    long = next((short[head] for v in (version, *versions()) if head in (short := short_flags(v))), "")
    if LEVEL.fullmatch(arg):
        form = f"{LEVEL_FLAG}={arg[2:].lstrip('=')}"
    elif head == OPTIMIZATION and dot:
        form = f"--compilation-config.{keys}{equals}{value}"
    else:
        form = f"{long}{dot}{keys}{equals}{value}" if long else ""
    message, allowed = "is a short flag, which is not read here", "--flag or --flag=value, one an entry"
    refused = next(refusals(path, form, version, model, roles), None) if form else None
    if refused is not None:
        yield Fault(path, say("is short for {}, which {}", long or form, refused.message), arg, refused.allowed, refused.advice, ways=refused.ways)
    else:
        yield Fault(path, message, arg, allowed, ways=[use(path, form) if form else []], otherwise="write its long form")


@rule(
    "extra-env",
    Level.ERROR,
    Stage.FORM,
    f"docs/reference/engine-options.md, https://github.com/aws/aws-ofi-nccl/blob/v1.21.1/doc/efa-env-var.md and {VLLM}docs/usage/security.md",
    firm=True,
)
def extra_env(s: Subject) -> Iterator[Fault]:
    """Extra variables neither break nor open the engine, are not set by the project, and carry no secret."""
    for of_pair, model in s.written():
        for name, (place, value) in written_variables(model):
            path, about = f"{of_pair}.{place}", variable(name)
            flags = [_said(s, model, role) for role in roles_reached(model, place)]
            if about is not None and about.verdict == "ours":
                yield Fault(path, "is set by the project", None, "variables that it does not set", ways=[remove(path)])
            elif about is not None and not about.over_efa and _refuses(about, value, model, flags):
                # its text may be a secret
                yield Fault(path, say(about.reason), value if about.of_values else None, about.right, ways=[remove(path)])
            elif name == NCCL_DEBUG and value.upper() not in NCCL_LEVELS:
                yield Fault(path, "is no level of NCCL's log", value, ", ".join(NCCL_LEVELS), ways=[use(path, "INFO")])
            elif EXPANDED_SECRET.search(value):
                allowed = "values without $(HF_TOKEN) and $(VLLM_API_KEY)"
                yield Fault(path, "copies a secret into another variable", None, allowed, ways=[remove(path)])
            elif carries_secret(name, value):
                yield Fault(
                    path,
                    "looks like a secret, which would stand in the pod's manifest",
                    None,
                    say("a secret key that {weights.tokenKey} names"),
                    "name a secret key instead",
                )


def _refuses(about: Verdict, value: str, model: ModelSpec, flags: Sequence[Arguments]) -> bool:
    """Whether a variable cannot be added with this value to a model whose roles have these flags."""
    kind = about.verdict == "breaks" or (about.verdict == "pd-refused" and model.disaggregated)
    return kind and about.holds_for(value) and not all(any(said.is_on(option) for option in about.unless) for said in flags)


def _said(s: Subject, model: ModelSpec, role: RoleName) -> Arguments:
    return Arguments(_version(s, model), (extra.value for extra in arguments_of(model, role)))


@rule("efa-env", Level.ERROR, Stage.FORM, f"https://github.com/aws/aws-ofi-nccl/blob/v1.21.1/doc/efa-env-var.md {LIBFABRIC} {EKS}node-efa.html")
def efa_env(s: Subject) -> Iterator[Fault]:
    """Where pods talk over EFA, no extra variable takes the traffic off it or names what its nodes lack."""
    for served in s.served:
        for name, (place, value) in written_variables(served.spec) if over_efa(served) else ():
            about = variable(name)
            if about is not None and about.over_efa and about.holds_for(value):
                path = f"{served.path}.{place}"
                level = Level.WARNING if about.warns else None
                yield Fault(path, say(about.reason), value, about.right, level=level, ways=[remove(path)])


@rule("forecast-flags", Level.WARNING, Stage.FORM, "docs/forecast.md")
def forecast_flags(s: Subject) -> Iterator[Fault]:
    """Flags and variables that change memory or layout are not counted in the forecast, unless every role has a calibration."""
    fix = "set calibration in each role, from the log of a start with it"
    for served in s.served:
        flags = [e for e in written_arguments(served.spec) if any(_uncounted(one) for one in read(served.engine.version, e.value))]
        variables = [e for name, e in sorted(written_variables(served.spec)) if _uncounted_variable(name, e.value)]
        for place, value in (*flags, *variables):
            if any(served.spec.roles[name].calibration is None for name in roles_reached(served.spec, place)):
                yield Fault(f"{served.path}.{place}", NOT_COUNTED, value, "without it, or calibration", fix)


def _uncounted_variable(name: str, value: str) -> bool:
    about = variable(name)
    return about is not None and about.verdict == "counted" and about.holds_for(value)


def _uncounted(one: Said) -> bool:
    about = verdict_of(one.option)
    if one.option == OVERRIDES and OF_CONTEXT.issuperset(one.keys[:1] or as_data(one.plain) or {"nothing"}):
        return False
    return about is not None and about.verdict == "counted" and not about.forecast and not one.is_default and about.holds_for(one.plain)


def over_efa(served: Served) -> bool:
    """Whether the pods of a model talk over EFA: prefill with decode, or the nodes of one engine."""
    return served.spec.disaggregated or any(group_size(r, served.instances[n]) > 1 for n, r in served.spec.roles.items())


def is_secret(arg: str) -> bool:
    """Whether a flag is named like a secret, or its value is one."""
    return carries_secret(arg.split("=", 1)[0], arg)


def _may_hold_secret(text: str) -> bool:
    """Whether a text that is no flag has a secret in it, or a word that is named like one, wherever its value stands."""
    return holds_secret(text) or any(map(names_secret, re.split(r"[\s=:,;]+", text)))


def _version(s: Subject, model: ModelSpec) -> str:
    """The version of a model's engine; nothing where the catalogue does not say."""
    try:
        return s.catalog.engines[model.engine].version if model.engine in s.catalog.engines else ""
    except SpecError:
        return ""
