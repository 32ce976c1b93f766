"""The tables and pages of the OPT-Tree paper."""
