"""Graded images: manifests, sources, annotators, splits, decoding, stores, phantoms."""
