"""Small random checkpoints on disk."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = [f"w{number}" for number in range(20)]
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
}


def word_tokenizer(words: Sequence[str], added: Sequence[str] = (), **special: str) -> PreTrainedTokenizerFast:
    """Its tokens are `words`, which spaces separate, and behind them those `added`."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(list(added))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def checkpoint(folder: Path, words: Sequence[str] = WORDS, added: Sequence[str] = (), **config: int) -> Path:
    """A random Llama whose tokenizer knows these words."""
    word_tokenizer(words, added, unk_token=words[0]).save_pretrained(folder)
    LlamaForCausalLM(LlamaConfig(vocab_size=len(words) + len(added), **SMALL | config)).save_pretrained(folder)
    return folder
