"""Two runs, or two folders of results, against each other: what a change of a method did to its numbers."""
