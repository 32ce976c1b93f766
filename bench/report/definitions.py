"""What the headers of tables mean, once for all tables."""

MAL = (
    "mean acceptance length: new tokens / decoding steps, pooled over prompts, bonus token counted; in brackets the "
    "95% interval (bootstrap over conversations)"
)
EXPECTED = "mean expected acceptance length: sum of the draft's path probabilities, root counted"
SIZE = "drafted nodes a step, root excluded"
TOKENS_PER_S = "decoded tokens per second of decoding, prefill excluded"
SPEEDUP = (
    "decoding time per token, autoregressive / method, paired: same prompts, process and device; the autoregressive "
    "row is set against itself and shows what the machine can resolve"
)
LOSSLESS = "whether the rule keeps the target's output law"
IDENTICAL = "share of outputs equal to the autoregressive output token for token (temperature 0)"
VERDICT = (
    "by a rule fixed beforehand (bench/report/verdict.py): matches, order holds, differs, not comparable, or not run"
)
