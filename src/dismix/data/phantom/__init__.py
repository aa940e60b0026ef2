"""Phantoms: drawn knees and fundi whose rank factor and all other factors are known."""

from dismix.data.phantom.build import build_phantom, read_factors
from dismix.data.phantom.draw import draw_factors
from dismix.data.phantom.factors import (
    Factors,
    FundusFactors,
    KneeFactors,
    rank_free_factors,
)
from dismix.data.phantom.measure import joint_space_width, lesion_area, measured_severity
from dismix.data.phantom.render import render
from dismix.data.phantom.spec import PhantomSpec

__all__ = [
    "Factors",
    "FundusFactors",
    "KneeFactors",
    "PhantomSpec",
    "build_phantom",
    "draw_factors",
    "joint_space_width",
    "lesion_area",
    "measured_severity",
    "rank_free_factors",
    "read_factors",
    "render",
]
