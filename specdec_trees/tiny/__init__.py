"""The embedded pair: weights, tokenizer, prompts, and the script that trained it."""
