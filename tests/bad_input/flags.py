"""Extra flags that no engine, or not this one, takes."""

from __future__ import annotations

from typing import Any

from factories import aggregated, environment, role

from .case import Case, one

PLACE = "models[0].extraArgs[0]"
OWN_MODEL = {
    "id": "own",
    "repository": "a/b",
    "architecture": "LlamaForCausalLM",
    "parametersB": {"total": 8, "active": 8},
    "layers": 32,
    "hiddenSize": 4096,
    "attentionHeads": 32,
    "kvHeads": 8,
    "headDim": 128,
    "intermediateSize": 14336,
    "vocabSize": 128256,
    "contextLength": 8192,
    "weightDtype": "bf16",
    "checkpointGB": 16,
    "serveFlags": ["--reasoning-parser=magic"],
    "source": ["here"],
    "checked": "2026-11-29",
}


def flag(*args: str, **overrides: Any) -> dict[str, Any]:
    """An environment whose one model has these extra flags."""
    return one(extraArgs=list(args), **overrides)


FLAG_CASES = [
    Case("flag of no engine", flag("--enable-magic"), PLACE, "--enable-magic", "its flags, spelt in full", says="is not a flag of vLLM 0.33.0"),
    Case("flag cut short", flag("--enforce-eag"), PLACE, "--enforce-eag", "--enforce-eager", "use --enforce-eager", says="is a flag cut short"),
    Case("flag cut shorter", flag("--enable-prefix-c"), PLACE, "--enable-prefix-c", "--enable-prefix-caching", "use --enable-prefix-caching"),
    Case("flag misspelt", flag("--enforce_eagre"), PLACE, "--enforce_eagre", "spelt in full", "use --enforce-eager"),
    Case(
        "flag of another version",
        flag("--aux-output-config={}", engine="vllm-0.27.1-dlc"),
        PLACE,
        "--aux-output-config={}",
        says="is not a flag of vLLM 0.27.1",
    ),
    Case(
        "flag that only the other version has",
        flag("--disable-log-requests", engine="vllm-0.27.1-dlc"),
        PLACE,
        "--disable-log-requests",
        "vLLM 0.33.0 has this one",
        "use --no-enable-log-requests",
        says="is not a flag of vLLM 0.27.1",
    ),
    Case("switch that is not disabled", flag("--enable-trust-remote-code"), PLACE, "--enable-trust-remote-code", fix="use --trust-remote-code"),
    Case("value of no flag", flag("--=3"), PLACE, "--=3", "--flag=value", "join flag and value", says="is not a flag"),
    Case("flag without its value", flag("--seed"), PLACE, "--seed", "--seed=...", "join flag and value with =", says="has no value"),
    Case("key without its value", flag("--compilation-config.mode"), PLACE, "-config.mode", "-config.mode=...", says="takes the next flag"),
    Case("switch with a value", flag("--enforce-eager=1"), PLACE, "--enforce-eager=1", "--enforce-eager", "use --enforce-eager", "takes no value"),
    Case("switch that is off", flag("--enable-prefix-caching=false"), PLACE, "=false", fix="use --no-enable-prefix-caching", says="takes no value"),
    Case("word for a number", flag("--seed=x"), PLACE, "--seed=x", "a whole number", "correct the value", says="is not a whole number"),
    Case("fraction for a number", flag("--max-logprobs=1.5"), PLACE, "=1.5", "a whole number", "correct the value"),
    Case("two letters for a size", flag("--kv-cache-memory-bytes=1GB"), PLACE, "=1GB", "as 25.6k or 4G", "correct the value", "not a whole number"),
    Case("fraction of 1024", flag("--kv-cache-memory-bytes=1.5G"), PLACE, "=1.5G", "as 25.6k or 4G", "correct the value"),
    Case("numbers for a number", flag("--cudagraph-capture-sizes=1,2"), PLACE, "=1,2", "a whole number", "correct the value"),
    Case(
        "trace that no engine has", flag("--collect-detailed-traces=modle"), PLACE, "=modle", "-traces=model", "use --collect-detailed-traces=model"
    ),
    Case("word for JSON", flag("--compilation-config=fast"), PLACE, "=fast", "--compilation-config.key=value", says="is not a JSON object"),
    Case("keys of a number", flag("--seed.x=1"), PLACE, "--seed.x=1", "--seed=...", "remove it", says="takes no keys"),
    Case(
        "value that no engine has", flag("--scheduling-policy=fcsf"), PLACE, "=fcsf", "--scheduling-policy=priority", "use --scheduling-policy=fcfs"
    ),
    Case("parser that no engine has", flag("--tool-call-parser=hermes2"), PLACE, "hermes2", "--tool-call-parser=hermes", "=hermes"),
    Case("object that is none", flag("--compilation-config=3"), PLACE, "=3", "JSON", says="is not a JSON object"),
    Case("flag without its other", flag("--enable-log-outputs"), PLACE, "-outputs", "--enable-log-requests", "remove it", "stops vLLM without"),
    Case("flag twice", flag("--seed=1", "--seed=2"), PLACE, "--seed=1", "each flag once", "remove it", says="stands here again"),
    Case("whole and by keys", flag("--compilation-config={}", "--compilation-config.mode=3"), PLACE, "{}", fix="put the keys", says="has no effect"),
    Case(
        "speculative method of no engine",
        one(speculative={"method": "guess", "numSpeculativeTokens": 2}),
        "models[0].speculative.method",
        "guess",
        "ngram, ngram_gpu",
        "use ngram",
        "is no method of vLLM 0.33.0",
    ),
    Case(
        "speculative method of another version",
        one(engine="vllm-0.27.1-dlc", speculative={"method": "step5_mtp", "numSpeculativeTokens": 2}),
        "models[0].speculative.method",
        "step5_mtp",
        fix="use ngram",
        says="is no method of vLLM 0.27.1",
    ),
    Case(
        "parser of an entry",
        environment(aggregated(model="own"), catalogDirs=["."]),
        "models[0].model",
        "own",
        "--reasoning-parser=deepseek_r1",
        "edit the entry",
        "has the flag --reasoning-parser=magic in its entry",
        files={"models/own.yaml": OWN_MODEL},
    ),
    Case(
        "flag of the project in an entry of one's own",
        environment(aggregated(model="own"), catalogDirs=["."]),
        "models[0].model",
        "own",
        "flags without a field",
        "edit the entry",
        says="has the flag --max_model_len=5 in its entry, which is set by the project",
        files={"models/own.yaml": {**OWN_MODEL, "serveFlags": ["--max_model_len=5"]}},
    ),
    Case(
        "value that the parser of this version has not",
        environment(
            aggregated(
                model="gpt-oss-120b",
                engine="vllm-0.27.1-dlc",
                maxModelLen=4096,
                server=role(tensorParallel=4, dataParallel=2, expertParallel=True, all2allBackend="moonep"),
            )
        ),
        "models[0].server.all2allBackend",
        "moonep",
        "nixl_ep",
        "remove it",
        says="is no value that vLLM 0.27.1 has for --all2all-backend",
    ),
]
