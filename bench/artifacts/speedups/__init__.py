"""Tables of speedup and tokens per step by method: ours beside what a paper prints for the same setting."""
