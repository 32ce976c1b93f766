"""Answers graded by another model, behind an endpoint that speaks OpenAI's chat completions: `specdec_trees.judge`."""
