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
BONUS = "bonus token counted"
NODES = "N counts the root as the paper does: drafted nodes + 1"
LEVELS = "levels = depth of the deepest node + 1"
TREE = f"(N, levels) of the tree: {NODES}; {LEVELS}"
SECONDS_PER_TOKEN = "seconds of decoding / decoded token, prefill excluded; in brackets the 95% interval"
ACCEPTED_CHILD = "P_k: probability that one of the k children of an accepted node is accepted"
EXPECTED_TREE = (
    "expected tokens per step F(T) = sum over nodes of the product of p_position on their path, root counted"
)
PREDICTED_MAL = "F(T) of the run's static tree at the measured acceptance vector"
PREDICTED_SPEEDUP = "G(n, d) / (t(n + 1) + d c) from the measured vector and forward times (Sequoia, Equation 1)"
RATIO = (
    "{} over {}, paired over the conversations that both decoded; in parentheses which is ahead: neither where 1 lies "
    "within the 95% interval (bootstrap over conversations; in brackets in the details); the paper's by value alone"
)
