"""Acceptance of runs under the names of serving engines, and their records beside ours; see docs/engines.md."""
