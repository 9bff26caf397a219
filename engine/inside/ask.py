"""Runs in an engine's own environment: what vLLM's parser and configuration checks say about command lines.

Reads a JSON list of {"name", "argv", "model"} from stdin; `model` is a folder with a config.json that stands for the weights, and argv is
what follows `vllm serve`. Prints a JSON list of {"name", "stage", "reason"}: stage "ok", or where it was refused.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
from typing import Any

# what vLLM finds out about a model's class takes it as long as its own start, so it is kept beside the engine
os.environ |= {"VLLM_LOGGING_LEVEL": "CRITICAL", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CACHE_ROOT": f"{sys.prefix}/vllm-cache"}


def load() -> tuple[Any, Any, Any]:
    """The module that makes the parser, the class of the arguments, and the parser's class; their places moved between versions."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    try:
        from vllm.entrypoints.common import cli_args
    except ImportError:
        from vllm.entrypoints.openai import cli_args
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:
        from vllm.utils import FlexibleArgumentParser
    return cli_args, AsyncEngineArgs, FlexibleArgumentParser


def known_parsers() -> dict[str, set[str]]:
    """Names of tool and reasoning parsers; vLLM itself looks at them only when it starts to serve."""
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    return {"tool_call_parser": set(ToolParserManager.list_registered()), "reasoning_parser": set(ReasoningParserManager.list_registered())}


def verdict(case: dict[str, Any], parser: Any, cli_args: Any, engine_args: Any, parsers: dict[str, set[str]]) -> tuple[str, str]:
    """Where vLLM refuses a command line, and what it says; ("ok", "") where it does not."""
    stage, said = "parse", io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            args = parser.parse_args(case["argv"])
            cli_args.validate_parsed_serve_args(args)
            for field, names in parsers.items():
                value = getattr(args, field, None)
                if value and value not in names:
                    return "names", f"{field} {value} is not registered"
            if case.get("model"):
                stage = "config"
                args.model, args.tokenizer, args.skip_tokenizer_init = case["model"], None, True
                args.reasoning_parser = ""  # it wants a tokenizer; its name was looked at
                args.load_format = "auto"  # the streamer would look into the bucket
                engine_args.from_cli_args(args).create_engine_config(headless=getattr(args, "headless", False))
    except SystemExit:
        return stage, " ".join(said.getvalue().split()).rpartition("error: ")[2]
    except Exception as problem:  # noqa: BLE001 (the verdict is whatever vLLM raises)
        return stage, f"{type(problem).__name__}: {' '.join(str(problem).split())[:400]}"
    return "ok", ""


def main() -> None:
    """Answer all cases."""
    cases = json.load(sys.stdin)
    out, sys.stdout = sys.stdout, sys.stderr
    cli_args, engine_args, parser_class = load()
    # `vllm serve` itself takes any beginning of a flag, which would float with the next version's flags
    parser = cli_args.make_arg_parser(parser_class(prog="vllm serve", allow_abbrev=False))
    logging.disable(logging.CRITICAL)
    parsers = known_parsers()
    answers = []
    for case in cases:
        stage, reason = verdict(case, parser, cli_args, engine_args, parsers)
        answers.append({"name": case["name"], "stage": stage, "reason": reason})
    json.dump(answers, out)


if __name__ == "__main__":
    main()
