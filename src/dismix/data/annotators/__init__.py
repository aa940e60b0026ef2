"""Annotators: people who vote on images. Simulate them, compare them, find a consensus."""

from dismix.data.annotators.agreement import (
    Agreement,
    fleiss_kappa,
    krippendorff_alpha,
    measure_agreement,
)
from dismix.data.annotators.consensus import CONSENSUS, Consensus, dawid_skene, majority
from dismix.data.annotators.simulate import PRESETS, simulate_annotators, simulate_votes
from dismix.data.annotators.variability import (
    Variability,
    VariabilityReport,
    measure_variability,
)
from dismix.data.annotators.votes import majority_vote, one_hot_votes, vote_shares

__all__ = [
    "CONSENSUS",
    "PRESETS",
    "Agreement",
    "Consensus",
    "Variability",
    "VariabilityReport",
    "dawid_skene",
    "fleiss_kappa",
    "krippendorff_alpha",
    "majority",
    "majority_vote",
    "measure_agreement",
    "measure_variability",
    "one_hot_votes",
    "simulate_annotators",
    "simulate_votes",
    "vote_shares",
]
