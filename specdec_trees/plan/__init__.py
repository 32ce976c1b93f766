"""Cells, licences, memory and hours of an experiment before it runs: `python -m specdec_trees.plan`, or `make plan`."""
