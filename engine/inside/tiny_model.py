"""Random weights and a tokenizer for the config.json of a folder: `python tiny_model.py FOLDER`.

The same files every time. Weights are spread so widely that answers depend on the whole prompt: with those of a usual start the model
repeats one token, and equal answers would prove nothing.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

SEED, SPREAD = 20261130, 0.25
TEXT = "A prompt is read once and its keys and values move to the engine that writes the answer."


def main(folder: str) -> None:
    """Write them."""
    config = AutoConfig.from_pretrained(folder)
    config.initializer_range = SPREAD
    torch.manual_seed(SEED)
    # in the dtype of the config, which is what vLLM takes with --dtype=auto
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=config.vocab_size, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
