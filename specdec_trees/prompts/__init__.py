"""Conversations: of the hub, of a folder or bundled, and the templates that make them prompts.

No models beyond a tokenizer, no rows.
"""
