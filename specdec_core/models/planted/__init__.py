"""Pairs of random weights that agree as often as one number says: the cost of real models without their weights."""
