"""The HTML report: an index of all artifacts with their status, and a page per paper with its tables and figures."""
