"""`disagg init`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from ..catalog import load_catalog
from ..errors import Level, SpecError, ToolError
from ..rules.proposal import Proposal, Wish, model_name, propose
from . import answers
from .common import emit, makes_components
from .complete import INSTANCES, MODELS
from .new_project import check_command, own_project, project_files, schema_of, shown, stack_text, target_of, write_new

MODEL, INSTANCE, STACK, REGION = "llama-3.3-70b-instruct-fp8", "p5.48xlarge", "dev", "us-east-1"
MOST_NODES, LEAST_RATE = 1000, 0.000001
_Answer = TypeVar("_Answer", str, int, float)


class Mode(StrEnum):
    """How the model is served."""

    DISAGGREGATED = "disaggregated"
    AGGREGATED = "aggregated"


def init(  # noqa: PLR0913, PLR0917 (an answer each)
    stack: Annotated[str | None, typer.Argument(help="Name of the new stack.", show_default=False)] = None,
    model: Annotated[str | None, typer.Option(help="Catalogue id or Hugging Face name.", autocompletion=MODELS, show_default=False)] = None,
    region: Annotated[str | None, typer.Option(help="AWS region.", show_default=False)] = None,
    zone: Annotated[list[str] | None, typer.Option(help="Availability zone, first that of the GPU nodes; repeat it.", show_default=False)] = None,
    instance: Annotated[str | None, typer.Option(help="Instance type of the GPU nodes.", autocompletion=INSTANCES, show_default=False)] = None,
    nodes: Annotated[int | None, typer.Option(min=1, max=MOST_NODES, help="GPU nodes there are; without it the fewest.", show_default=False)] = None,
    reservation: Annotated[list[str] | None, typer.Option(help="Capacity reservation or block; may be repeated.", show_default=False)] = None,
    mode: Annotated[Mode | None, typer.Option(help="Separate prefill and decode, or one role.", show_default=False)] = None,
    input_tokens: Annotated[int | None, typer.Option(min=1, help="Mean prompt length.", show_default=False)] = None,
    output_tokens: Annotated[int | None, typer.Option(min=1, help="Mean answer length.", show_default=False)] = None,
    requests_per_second: Annotated[float | None, typer.Option(min=LEAST_RATE, help="Mean arrival rate.", show_default=False)] = None,
    ttft_ms: Annotated[float | None, typer.Option(min=0, help="Limit of the first token; 0 for none.", show_default=False)] = None,
    tpot_ms: Annotated[float | None, typer.Option(min=0, help="Limit of each further token; 0 for none.", show_default=False)] = None,
    max_model_len: Annotated[int | None, typer.Option(min=1, help="Longest prompt and answer; else from the means.", show_default=False)] = None,
    admin_role: Annotated[list[str] | None, typer.Option(help="ARN of a role that administers the cluster.", show_default=False)] = None,
    access_from: Annotated[list[str] | None, typer.Option(help="Network that may reach the cluster's API.", show_default=False)] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take the default where no option is given.")] = False,
) -> int:
    """Write a stack file that passes `disagg check`.

    It asks for what no option says. Without a project here it also writes the project.
    """
    ask = _Questions(interactive=sys.stdin.isatty() and not yes, required=not yes)
    project = own_project()
    if project is not None and makes_components(project):
        raise ToolError(
            f"the program of {project.name} makes its components itself and would not read the new file; "
            "write what it asks for with `pulumi config set`, or start in an empty folder"
        )
    stack = ask("STACK", stack, "Name of the new stack", STACK, lambda name: target_of(name, project), required=True)
    target = target_of(stack, project)
    model = known = ask("--model", model, "Model, see `disagg catalog models`", MODEL, answers.model, required=True)
    region = within = ask("--region", region, "AWS region", REGION, answers.region, required=True)
    first = f"{region}a,{region}b"
    zones = _words(ask("--zone", _text(zone), "Zones, first that of the GPU nodes", first, lambda text: answers.zones(_words(text), within)))
    named = instance is not None
    instance = kind = ask("--instance", instance, "Instance type, see `disagg catalog instances`", INSTANCE, answers.instance)
    nodes = ask("--nodes", nodes, "GPU nodes there are (0: the fewest that work)", 0, answers.between(0, MOST_NODES)) or None
    on_demand = "Capacity reservations, cr-... (empty: on demand)"
    reserved = _words(ask("--reservation", _text(reservation), on_demand, "", lambda text: answers.reservations(_words(text), kind)))
    separate = mode is Mode.DISAGGREGATED if mode else ask.confirm("Separate prefill and decode")

    def fits(prompt: int, answer: int = 1) -> None:
        answers.between(1)(min(prompt, answer))
        answers.tokens(known, max_model_len, prompt, answer)

    prompt = ask("--input-tokens", input_tokens, "Mean prompt in tokens", 8000, fits)
    answer = ask("--output-tokens", output_tokens, "Mean answer in tokens", 1000, lambda tokens: fits(prompt, tokens))
    rate = ask("--requests-per-second", requests_per_second, "Mean requests a second", 1.0, answers.between(LEAST_RATE))
    entry = load_catalog().known_model(model)
    model = entry.id if entry else model
    first_token = ask("--ttft-ms", ttft_ms, "Limit of the first token in ms (0: none)", 0.0, answers.between(0)) or None
    token = ask("--tpot-ms", tpot_ms, "Limit of each further token in ms (0: none)", 0.0, answers.between(0)) or None
    wish = Wish(
        name=model_name(model),
        model=model,
        region=region,
        zones=tuple(zones),
        instance_type=instance,
        nodes=nodes,
        disaggregated=separate,
        reservation_ids=tuple(reserved),
        input_tokens=prompt,
        output_tokens=answer,
        requests_per_second=rate,
        ttft_ms=first_token,
        tpot_ms=token,
        max_model_len=max_model_len,
        admin_role_arns=tuple(admin_role or ()),
        public_access_cidrs=tuple(access_from or ()),
    )
    ask.complain()
    answers.region(region)
    fits(prompt, answer)
    base, sizes = project.root if project else Path.cwd(), bool(first_token or token) and not reserved
    proposal = _sized(wish, base, named=named or instance != INSTANCE, mode=mode) if sizes else propose(wish, base)
    files = {} if project else project_files()
    files[target] = stack_text(region, proposal.environment, schema_of(target, project), proposal.reason)
    write_new(files)
    lines = [f"wrote {shown(file)}" for file in files]
    lines += [f"{f.level} [{f.id}] {f.sentence()}" for f in proposal.evaluation.findings if f.level is not Level.INFO]
    lines += [f"note: {proposal.reason}"] if proposal.reason else []
    emit("\n".join([*lines, check_command(stack, new=project is None)]), None)
    return 0


def _sized(wish: Wish, base: Path, *, named: bool, mode: Mode | None) -> Proposal:
    """What `disagg size` proposes for the limits. Raises SpecError where nothing keeps them."""
    from ..rules import StackContext  # noqa: PLC0415 (seldom)
    from ..rules.evaluation import evaluate  # noqa: PLC0415
    from .sizing_options import Options, checked_answer, question  # noqa: PLC0415

    catalog = load_catalog()
    options = Options(
        wish.model, str(wish.input_tokens), str(wish.output_tokens), str(wish.requests_per_second), _number(wish.ttft_ms), _number(wish.tpot_ms),
        max_model_len=_number(wish.max_model_len), instances=wish.instance_type if named else None, region=wish.region,
        mode=mode.value if mode else "any", nodes=_number(wish.nodes),
    )  # fmt: skip
    ask, asked, _ = question(options, catalog)
    found = checked_answer(ask, replace(wish, max_model_len=asked.max_model_len, gpu_zone=wish.zones[0]), catalog, base, 1)
    return Proposal(found.environment, evaluate(found.environment, base, StackContext(wish.region)), f"by forecast: {found.document.answer}")


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:g}"


class _Questions:
    """Asks for what no option gave. Away from a terminal it takes defaults, and collects what must be said."""

    def __init__(self, *, interactive: bool, required: bool) -> None:
        self._interactive, self._required, self._missing = interactive, required, list[str]()

    def __call__(  # noqa: PLR0913 (what a question consists of)
        self, option: str, given: _Answer | None, words: str, default: _Answer, check: Callable[[_Answer], object], *, required: bool = False
    ) -> _Answer:
        """The given value, the answer, or the default; on a terminal what `check` refuses is asked for again."""
        if given is not None and not (self._interactive and _refused(check, given)):
            return given
        while self._interactive:
            answer: _Answer = typer.prompt(words, default=default, type=type(default), show_default=default not in ("", 0))
            if not _refused(check, answer):
                return answer
        if required and self._required:
            self._missing.append(option)
        return default

    def confirm(self, words: str) -> bool:
        """Yes or no; yes by default."""
        return typer.confirm(words, default=True) if self._interactive else True

    def complain(self) -> None:
        """Raise ToolError when something was not said."""
        if self._missing:
            raise ToolError(f"say {', '.join(self._missing)}; or --yes for the defaults, or start it in a terminal to be asked")


def _refused(check: Callable[[_Answer], object], answer: _Answer) -> bool:
    """Whether a check refuses an answer, after it has said why."""
    try:
        check(answer)
    except (SpecError, ToolError) as problem:
        typer.echo(str(problem), err=True)
        return True
    return False


def _text(words: list[str] | None) -> str | None:
    """What would be answered for these values of an option."""
    return ",".join(words) if words else None


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
