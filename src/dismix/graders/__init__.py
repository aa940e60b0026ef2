"""Ordinal graders: networks that give images a rank, trained on the votes of annotators."""
