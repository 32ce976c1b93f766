"""Cells, licences, memory and hours of an experiment before it runs: `python -m bench.plan`, or `make plan`."""
