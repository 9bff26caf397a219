"""The options of `disagg size` as a question; all that is wrong with them is found at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..catalog import Catalog, Instance, Model
from ..catalog.hf_config import read_model
from ..catalog.step_times import step_tables, table_for
from ..document.sizing import SizingDocument
from ..errors import Finding, Level, SpecError, closest
from ..forecast.fit.engine_shape import KV_DTYPES
from ..forecast.sizing import Ask, Limits, Search
from ..forecast.sizing.ask import LONGEST, MOST_NODES
from ..forecast.sizing.search import most_rate
from ..rules.proposal import Wish, model_name, proposed_context
from ..rules.sized import answer
from ..yaml_io import real
from . import answers

MEASURE = "measure an engine with `disagg bench --write-back`, and let `disagg plan` calculate with its rates"


@dataclass
class Options:
    """What was typed; numbers are texts until they are read."""

    model: str
    input_tokens: str
    output_tokens: str
    requests_per_second: str
    ttft_ms: str | None = None
    tpot_ms: str | None = None
    percentile: str = "90"
    prefix_hit: str = "0"
    max_model_len: str | None = None
    instances: str | None = None
    region: str = "us-east-1"
    mode: str = "any"
    pricing: str = "on-demand"
    nodes: str | None = None
    plan: str = "slow"
    kv_cache_dtype: str = "auto"
    top: str = "5"
    faults: list[Finding] = field(default_factory=list)

    def refuse(self, option: str, message: str, value: object, allowed: str, fix: str = "") -> None:
        """Note a fault."""
        self.faults.append(Finding("size", Level.ERROR, f"--{option}", message, value, allowed, fix))

    def number(self, option: str, text: str, least: float, most: float = math.inf, *, above: bool = False, whole: bool = False) -> float:  # noqa: PLR0913
        """A number between two bounds; the least one where the text is none, after a fault is noted."""
        try:
            found = float(int(text) if whole else float(text))
        except ValueError:
            found = math.nan
        inside = math.isfinite(found) and (found > least if above else found >= least) and found <= most
        if inside:
            return found
        ends = f"above {least:g}" if above else f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
        ends = f"{ends}, below {math.ceil(most)}" if option == "prefix-hit" else ends
        self.refuse(option, "is not possible", text, f"a {'whole ' if whole else ''}number, {ends}")
        return least if not above else math.nextafter(least, 1) + 1

    def one_of(self, option: str, value: str, known: Sequence[str]) -> str:
        """A word of a list; the first one where it is none of it."""
        if value in known:
            return value
        self.refuse(option, "is not known", value, ", ".join(known))
        return known[0]


def question(options: Options, catalog: Catalog, corrections: Mapping[tuple[str, str], float] | None = None) -> tuple[Ask, Wish, int]:
    """The question, what its stack file is for, and how many layouts are shown. Raises SpecError with all that is wrong."""
    o = options
    prompt = int(o.number("input-tokens", o.input_tokens, 1, whole=True))
    reply = int(o.number("output-tokens", o.output_tokens, 1, whole=True))
    rate = o.number("requests-per-second", o.requests_per_second, 0, above=True)
    ttft, tpot = (o.number(f"{n}-ms", t, 0, above=True) if t is not None else None for n, t in (("ttft", o.ttft_ms), ("tpot", o.tpot_ms)))
    percentile = int(o.one_of("percentile", o.percentile, ("90", "50", "95")))
    hit = o.number("prefix-hit", o.prefix_hit, 0, math.nextafter(1, 0))
    nodes = int(o.number("nodes", o.nodes, 1, 1000, whole=True)) if o.nodes is not None else None
    top = int(o.number("top", o.top, 1, 50, whole=True))
    mode = o.one_of("mode", o.mode, ("any", "aggregated", "disaggregated"))
    pricing = o.one_of("pricing", o.pricing, ("on-demand", "capacity-block"))
    plan = o.one_of("plan", o.plan, ("slow", "forecast"))
    dtype = o.one_of("kv-cache-dtype", o.kv_cache_dtype, KV_DTYPES)
    try:
        answers.region(o.region)
    except SpecError as problem:
        o.refuse("region", "is no name of a region", o.region, problem.findings[0].allowed)
    name, facts, table = _model(o, catalog)
    instances = _instances(o, catalog, table, pricing)
    longest = _longest(o, facts, prompt, reply)
    if o.faults or facts is None:
        raise SpecError(o.faults)
    twin = table if name not in catalog.models else None
    wish = Wish(
        name=model_name(table if twin else name), model=name, region=o.region, zones=(f"{o.region}a", f"{o.region}b"), gpu_zone=f"{o.region}a",
        input_tokens=prompt, output_tokens=reply, requests_per_second=rate, prefix_hit=hit, ttft_ms=ttft, tpot_ms=tpot, percentile=percentile,
        max_model_len=longest, kv_cache_dtype=dtype, repository=catalog.models[table].repository if twin else None,
    )  # fmt: skip
    limits: Any = Limits(ttft, tpot, percentile)  # type: ignore[arg-type]
    ask = Ask(
        name, facts, table, prompt, reply, rate, tuple(instances), limits, hit, longest, mode, pricing, nodes, plan, dtype,  # type: ignore[arg-type]
        corrections=corrections or {},
    )  # fmt: skip
    return ask, wish, top


def _model(o: Options, catalog: Catalog) -> tuple[str, Model | None, str]:
    """The model's name in a stack file, its facts, and whose step times it has."""
    have = [m for m in catalog.models if step_tables(m)]
    if o.model in catalog.models:
        if o.model in have:
            return o.model, catalog.models[o.model], o.model
        o.refuse("model", "has no step data", o.model, ", ".join(have), MEASURE)
        return o.model, None, ""
    path = Path(o.model)
    if path.exists():
        try:
            facts = read_model(path, path.name, o.model)
        except SpecError as problem:
            o.faults += [f.below("--model: ") for f in problem.findings]
            return o.model, None, ""
        twin = table_for(facts, catalog.models)
        if not twin:
            o.refuse("model", f"is a {facts.architecture} of a shape that has no step data", o.model, ", ".join(have), MEASURE)
            return o.model, None, ""
        inside = real(path).is_relative_to(Path.cwd())  # a stack file reads nothing outside of its project
        return (f"./{real(path).relative_to(Path.cwd()).as_posix()}", facts, twin) if inside else (twin, facts, twin)
    if (entry := catalog.known_model(o.model)) is not None:
        o.model = entry.id
        return _model(o, catalog)
    close = closest(o.model, [*have, *(catalog.models[m].repository for m in have)])
    fix = f"did you mean {close}?" if close else MEASURE
    o.refuse("model", "is no model with step data: no id of the catalogue, no repository of one, and no file", o.model, ", ".join(have), fix)
    return o.model, None, ""


def _instances(o: Options, catalog: Catalog, table: str, pricing: str) -> list[Instance]:
    """The instance types that may be bought."""
    if o.instances is None:
        return [catalog.instances[name] for name in catalog.instances]
    found = []
    gpus = {gpu for gpu, _ in step_tables(table)} if table else set()
    for name in dict.fromkeys(part.strip() for part in o.instances.split(",")):
        if name not in catalog.instances:
            missing = catalog.instances.missing("--instances", name)
            o.faults.append(missing)
            continue
        instance = catalog.instances[name]
        price = instance.capacity_block if pricing == "capacity-block" else instance.on_demand
        if price is None:
            priced = [
                i for i in catalog.instances if (catalog.instances[i].capacity_block if pricing != "on-demand" else catalog.instances[i].on_demand)
            ]
            o.refuse("instances", f"has no {pricing} price in the catalogue", name, ", ".join(priced), "or take the other --pricing")
        elif table and instance.gpu.name not in gpus:
            o.refuse("instances", f"has GPUs without step times of {table}", name, ", ".join(sorted(gpus)), MEASURE)
        found.append(instance)
    return found


def _priced(instance: Instance, pricing: str) -> bool:
    return (instance.capacity_block if pricing == "capacity-block" else instance.on_demand) is not None


def _longest(o: Options, facts: Model | None, prompt: int, reply: int) -> int:
    """Tokens of the longest request."""
    context = facts.context_length if facts else LONGEST
    if prompt > LONGEST:
        o.refuse("input-tokens", "is beyond the tables of step times", prompt, f"at most {LONGEST}")
    elif prompt + reply > LONGEST:
        o.refuse("output-tokens", f"with {prompt} tokens of prompt is beyond the tables of step times", reply, f"at most {LONGEST} together")
    elif prompt + reply > context:
        o.refuse("output-tokens", f"with {prompt} tokens of prompt is longer than the context of the model", reply, f"at most {context} together")
    wish = Wish(name="", model="", region="", zones=(), input_tokens=prompt, output_tokens=reply)
    if o.max_model_len is None:
        return proposed_context(wish, context)
    return int(o.number("max-model-len", o.max_model_len, prompt + reply, max(context, prompt + reply), whole=True))


@dataclass(frozen=True)
class Answer:
    """What was found, and its environment in the stack file's own keys."""

    document: SizingDocument
    environment: dict[str, Any]


def checked_answer(ask: Ask, wish: Wish, catalog: Catalog, base: Path, top: int) -> Answer:
    """The answer. Raises SpecError with the reasons where nothing keeps the limits and passes the rules."""
    found = answer(ask, wish, catalog, base, top)
    if found.document is not None:
        return Answer(found.document, found.environment)
    if found.search.found:
        raise SpecError(found.findings)
    limits, alone = ask.limits, found.search.alone
    over = any(limit and alone.get(name, 0) > limit for name, limit in (("ttft", limits.ttft_ms), ("tpot", limits.tpot_ms)))
    raise SpecError(unmet(ask, found.search, most_rate(ask) if alone and not over else None))


def unmet(ask: Ask, found: Search, most: float | None) -> list[Finding]:
    """Why nothing keeps the limits; `most` is the rate that the nodes there are hold."""
    findings = []
    for option, name, limit in (("--ttft-ms", "ttft", ask.limits.ttft_ms), ("--tpot-ms", "tpot", ask.limits.tpot_ms)):
        alone = found.alone.get(name)
        if limit is not None and alone is not None and alone > limit:
            shown = math.ceil(alone) if name == "ttft" else math.ceil(alone * 10) / 10
            message = f"is less than one request alone takes, {shown:g} ms on the fastest form that fits"
            findings.append(
                Finding("size", Level.ERROR, option, message, limit, f"{shown:g} or more", "raise the limit, or allow other instance types")
            )
    if findings:
        return findings
    if not found.alone and found.missing_gib:
        message = f"does not fit any of the instance types: {found.missing_gib:.1f} GiB a GPU are missing for one request, at the least"
        others = "instance types with more memory, or --kv-cache-dtype fp8"
        return [Finding("size", Level.ERROR, "--model", message, ask.model, others)]
    if most is not None and most > 0:
        nodes = ask.nodes or MOST_NODES
        message = f"is more than {nodes} nodes{'' if ask.nodes else ' a role'} hold within the limits"
        return [Finding("size", Level.ERROR, "--requests-per-second", message, ask.requests_per_second, f"at most {most:.3g}", "give more --nodes")]
    reasons = "; ".join(f"{count} x {reason}" for reason, count in found.left_out.most_common(3))
    return [Finding("size", Level.ERROR, "--model", f"is kept by no form of engine: {reasons}", ask.model, "another limit, mode or instance type")]
