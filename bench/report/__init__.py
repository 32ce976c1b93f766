"""From rows to papers: results and published numbers become tables, figures and pages."""
