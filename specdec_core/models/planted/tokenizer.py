"""The tokenizer of planted pairs: all bytes, then made-up words, so that any text has ids and any ids have a text."""

from itertools import islice, product
from string import ascii_lowercase

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import Unigram
from transformers import PreTrainedTokenizerFast

from specdec_core.errors import LoadError

SPACE = "Ġ"
"""How a byte-level vocabulary writes the space in front of a word."""


def planted_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """`size` tokens, none of which begins, ends or pads a text; a text is cut into as few of them as will do.

    Behind the 256 bytes stand all short combinations of letters, so that a text has about as many tokens as with a
    trained vocabulary. LoadError for fewer than 256.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if size < len(alphabet):
        raise LoadError(f"a planted vocabulary has all {len(alphabet)} bytes, and {size} tokens are too few")
    forms = ((SPACE, 1), ("", 2), (SPACE, 2), (SPACE, 3), ("", 3), (SPACE, 4), ("", 4))
    words = (start + "".join(letters) for start, length in forms for letters in product(ascii_lowercase, repeat=length))
    vocabulary = [*alphabet, *islice(words, size - len(alphabet))]
    if len(vocabulary) < size:
        raise LoadError(f"a planted vocabulary has at most {len(vocabulary)} tokens, not {size}")
    tokenizer = Tokenizer(Unigram([(token, -1.0) for token in vocabulary], unk_id=0))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)
