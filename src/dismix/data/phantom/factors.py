"""The known factors of a phantom: one that is the rank, and many that are not.

The rank factor is a continuous ``severity``, which fixes the joint space and bone spurs of a
knee and the lesions of a fundus. All else about a picture is a rank-free factor.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any

from dismix.data.phantom.spec import Subject


@dataclass(frozen=True)
class Factors:
    """Factors both subjects have.

    Attributes:
        num_ranks: Number of ranks C.
        rank: The grade, 0..C-1.
        severity: The rank factor in rank units, [0, C-1], within ``spec.jitter`` of ``rank``.
        mirror: Whether the picture shows the mirrored (right) side.
        rotation: Degrees.
        zoom: Magnification; for the fundus, of the anatomy within the field.
        offset_x: Shift of the subject, in image sides.
        offset_y: Shift of the subject, in image sides.
        exposure: Overall brightness.
        gamma: Exponent of the tone curve.
        noise: Standard deviation of the sensor noise, full range 1.
        noise_seed: Seed of that noise.
        texture: Strength of the tissue texture.
        texture_seed: Seed of the texture.
    """

    num_ranks: int
    rank: int
    severity: float
    mirror: bool
    rotation: float
    zoom: float
    offset_x: float
    offset_y: float
    exposure: float
    gamma: float
    noise: float
    noise_seed: int
    texture: float
    texture_seed: int

    @property
    def progress(self) -> float:
        """Severity as a fraction of its range, 0 to 1."""
        return self.severity / (self.num_ranks - 1)


@dataclass(frozen=True)
class KneeFactors(Factors):
    """Factors of a knee radiograph.

    Attributes:
        asymmetry: How much more the medial than the lateral compartment narrows, 0 to 0.15.
        contrast: Brightness range of the picture.
        bone_width: Width of the condyles, in image sides at zoom 1.
        notch: Half-width of the intercondylar notch, in bone widths.
        shaft: Half-width of the bone shafts, in bone widths.
        soft_tissue: Half-width of the leg's shadow, in bone widths.
        patella: Brightness of the patella's shadow.
        implant: "none", "screw" or "plate", always away from the joint.
        implant_bone: "femur" or "tibia".
        implant_place: Where across the bone, -1 to 1.
        implant_angle: Degrees.
    """

    asymmetry: float
    contrast: float
    bone_width: float
    notch: float
    shaft: float
    soft_tissue: float
    patella: float
    implant: str
    implant_bone: str
    implant_place: float
    implant_angle: float

    @property
    def joint_space(self) -> float:
        """Mean joint-space width of the two compartments, in bone widths."""
        return joint_space(self.progress)

    @property
    def joint_space_medial(self) -> float:
        """Joint-space width of the medial compartment, in bone widths."""
        return JOINT_SPACE[0] - (JOINT_SPACE[0] - self.joint_space) * (1 + self.asymmetry)

    @property
    def joint_space_lateral(self) -> float:
        """Joint-space width of the lateral compartment, in bone widths."""
        return JOINT_SPACE[0] - (JOINT_SPACE[0] - self.joint_space) * (1 - self.asymmetry)

    @property
    def osteophyte(self) -> float:
        """Length of the bone spurs, in bone widths."""
        return 0.075 * self.progress


@dataclass(frozen=True)
class FundusFactors(Factors):
    """Factors of a fundus photograph.

    Attributes:
        field: Radius of the lit field, in image sides.
        red: Brightness of the red channel of the healthy retina.
        green: Its green, as a fraction of red.
        blue: Its blue, as a fraction of green.
        vignette: Loss of light towards the rim.
        light_x: Side-to-side slope of the light.
        light_y: Slope of the light from top to bottom.
        disc_x: Optic disc, in field radii at zoom 1 (left eye).
        disc_y: Optic disc, in field radii at zoom 1.
        disc_size: Radius of the optic disc, in field radii at zoom 1.
        macula: Darkness of the macula.
        vessel_width: Calibre of the vessels.
        vessel_seed: Seed of the vessel tree.
        lesion_seed: Seed of where and what the lesions are (not of how many).
        exudate_share: Share of bright lesions among all.
    """

    field: float
    red: float
    green: float
    blue: float
    vignette: float
    light_x: float
    light_y: float
    disc_x: float
    disc_y: float
    disc_size: float
    macula: float
    vessel_width: float
    vessel_seed: int
    lesion_seed: int
    exudate_share: float

    @property
    def lesion_load(self) -> float:
        """Share of the field that lesions cover."""
        return lesion_load(self.progress)


# Both maps are straight lines, so an error of measuring costs the same in ranks everywhere.
JOINT_SPACE = (0.135, 0.028)
LESION_LOAD = (0.0, 0.09)


def joint_space(progress: float) -> float:
    """Return the mean joint-space width in bone widths for a severity fraction of 0 to 1.

    Example:
        >>> joint_space(0.0), joint_space(1.0)
        (0.135, 0.028)
    """
    return JOINT_SPACE[0] * (1 - progress) + JOINT_SPACE[1] * progress


def lesion_load(progress: float) -> float:
    """Return the share of the field covered by lesions for a severity fraction of 0 to 1.

    Example:
        >>> lesion_load(0.5)
        0.045
    """
    return LESION_LOAD[0] * (1 - progress) + LESION_LOAD[1] * progress


_DERIVED = {
    KneeFactors: ("joint_space", "joint_space_medial", "joint_space_lateral", "osteophyte"),
    FundusFactors: ("lesion_load",),
}
_OF_RANK = ("num_ranks", "rank", "severity")


def factor_row(factors: Factors) -> dict[str, Any]:
    """Return every factor by name, with the widths, lengths and areas that follow from them.

    Example:
        >>> import numpy as np
        >>> from dismix.data.phantom import PhantomSpec, draw_factors
        >>> knee = draw_factors(PhantomSpec(), 0, np.random.default_rng(0))
        >>> list(factor_row(knee))[:3], list(factor_row(knee))[-1]
        (['num_ranks', 'rank', 'severity'], 'osteophyte')
    """
    derived = {name: getattr(factors, name) for name in _DERIVED[type(factors)]}
    return {**asdict(factors), **derived}


def rank_free_factors(subject: Subject) -> list[str]:
    """Return the names of the factors that say nothing about the rank, seeds left out.

    Example:
        >>> rank_free_factors("knee")[:4]
        ['mirror', 'rotation', 'zoom', 'offset_x']
    """
    kind = KneeFactors if subject == "knee" else FundusFactors
    names = [field.name for field in fields(kind)]
    return [name for name in names if name not in _OF_RANK and not name.endswith("_seed")]
