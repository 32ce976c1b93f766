"""Figures: one idea per file, all in the style of `style`; each comes with a table of the numbers it draws."""
