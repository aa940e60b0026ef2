"""Draw the factors of one image from explicit generators.

Every factor but ``severity`` is drawn without looking at the rank, so it is independent of
it. What belongs to the person (anatomy, texture, tint) comes from the patient's generator and
is the same on both sides; the rest comes from the image's own.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from dismix.data.phantom.factors import Factors, FundusFactors, KneeFactors
from dismix.data.phantom.spec import PhantomSpec

Side = Literal["left", "right"]
IMPLANTS = ("none", "screw", "plate")


def draw_factors(
    spec: PhantomSpec,
    rank: int,
    rng: np.random.Generator,
    *,
    patient_rng: np.random.Generator | None = None,
    side: Side | None = None,
) -> Factors:
    """Draw every factor of one image.

    Args:
        spec: Subject, number of ranks and jitter.
        rank: The grade, 0..C-1; only ``severity`` depends on it.
        rng: Source of what differs between a patient's two images.
        patient_rng: Source of what both share; ``rng`` when not given.
        side: "left" or "right"; drawn when not given.

    Returns:
        KneeFactors or FundusFactors.

    Example:
        >>> spec = PhantomSpec(subject="knee")
        >>> draw_factors(spec, 2, np.random.default_rng(0)).rank
        2
    """
    patient = rng if patient_rng is None else patient_rng
    low, high = max(0.0, rank - spec.jitter), min(spec.num_ranks - 1.0, rank + spec.jitter)
    severity = float(rng.uniform(low, high))
    right = bool(rng.random() < 0.5) if side is None else side == "right"
    draw = _draw_knee if spec.subject == "knee" else _draw_fundus
    return draw({"num_ranks": spec.num_ranks, "rank": rank}, severity, right, rng, patient)


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _draw_knee(
    known: Mapping[str, int],
    severity: float,
    right: bool,
    rng: np.random.Generator,
    patient: np.random.Generator,
) -> KneeFactors:
    return KneeFactors(
        **known,
        severity=severity,
        mirror=right,
        rotation=float(rng.uniform(-15, 15)),
        zoom=float(rng.uniform(0.8, 1.08)),
        offset_x=float(rng.uniform(-0.05, 0.05)),
        offset_y=float(rng.uniform(-0.19, 0.19)),
        exposure=float(rng.uniform(-0.1, 0.1)),
        gamma=float(rng.uniform(0.7, 1.45)),
        noise=float(rng.uniform(0.004, 0.02)),
        noise_seed=_seed(rng),
        texture=float(patient.uniform(0.4, 1.0)),
        texture_seed=_seed(patient),
        asymmetry=float(rng.uniform(0.0, 0.15)),
        contrast=float(rng.uniform(0.5, 1.0)),
        bone_width=float(patient.uniform(0.7, 0.76)),
        notch=float(patient.uniform(0.1, 0.13)),
        shaft=float(patient.uniform(0.27, 0.36)),
        soft_tissue=float(patient.uniform(0.58, 0.8)),
        patella=float(patient.uniform(0.02, 0.07)),
        implant=str(rng.choice(IMPLANTS, p=(0.7, 0.15, 0.15))),
        implant_bone=str(rng.choice(("femur", "tibia"))),
        implant_place=float(rng.uniform(-1, 1)),
        implant_angle=float(rng.uniform(-25, 25)),
    )


def _draw_fundus(
    known: Mapping[str, int],
    severity: float,
    right: bool,
    rng: np.random.Generator,
    patient: np.random.Generator,
) -> FundusFactors:
    return FundusFactors(
        **known,
        severity=severity,
        mirror=right,
        rotation=float(rng.uniform(-15, 15)),
        zoom=float(rng.uniform(0.85, 1.15)),
        offset_x=float(rng.uniform(-0.02, 0.02)),
        offset_y=float(rng.uniform(-0.02, 0.02)),
        exposure=float(rng.uniform(0.72, 1.05)),
        gamma=float(rng.uniform(0.95, 1.05)),
        noise=float(rng.uniform(0.002, 0.009)),
        noise_seed=_seed(rng),
        texture=float(patient.uniform(0.2, 1.0)),
        texture_seed=_seed(patient),
        field=float(rng.uniform(0.43, 0.49)),
        red=float(patient.uniform(0.62, 0.78)),
        green=float(patient.uniform(0.44, 0.62)),
        blue=float(patient.uniform(0.6, 0.95)),
        vignette=float(rng.uniform(0.1, 0.6)),
        light_x=float(rng.uniform(-0.25, 0.25)),
        light_y=float(rng.uniform(-0.25, 0.25)),
        disc_x=float(patient.uniform(-0.66, -0.52)),
        disc_y=float(patient.uniform(-0.1, 0.1)),
        disc_size=float(patient.uniform(0.13, 0.17)),
        macula=float(patient.uniform(0.25, 0.65)),
        vessel_width=float(patient.uniform(0.8, 1.2)),
        vessel_seed=_seed(patient),
        lesion_seed=_seed(rng),
        exudate_share=float(rng.uniform(0.25, 0.5)),
    )
