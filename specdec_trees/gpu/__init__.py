"""What a machine with a GPU is asked for in minutes: `python -m specdec_trees.gpu`, or `make bench-gpu`."""
