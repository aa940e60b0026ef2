"""The benchmark: plans, runs and records, and what they say beside the paper."""
