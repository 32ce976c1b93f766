"""What a machine with a GPU is asked for in minutes: `python -m bench.gpu`, or `make bench-gpu`."""
