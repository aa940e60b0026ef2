"""A knee seen from the front, as on a plain radiograph, drawn from its factors.

The bone frame is that of a left knee in units of the bone width: medial at negative x, the
joint line at y = 0, y downwards. The femoral contour is the tibial one lifted by the joint
space, so over the load-bearing zone the gap is exactly what the severity says.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dismix.data.phantom import canvas
from dismix.data.phantom.canvas import Array, as_float, bump, step
from dismix.data.phantom.factors import KneeFactors

EDGE = 0.006
AIR, TISSUE, BONE, METAL = 0.03, 0.36, 0.66, 1.0


def render_knee(factors: KneeFactors, size: int) -> NDArray[np.uint8]:
    """Draw one knee.

    Args:
        factors: What to draw.
        size: Side of the picture in pixels, at least 32.

    Returns:
        Grey picture, (size, size).
    """
    factor = canvas.supersampling(size)
    x, y = canvas.unit_grid(size, factor)
    across, along = canvas.place(
        x,
        y,
        rotation=factors.rotation,
        zoom=factors.zoom * factors.bone_width,
        offset=(factors.offset_x, factors.offset_y),
        mirror=factors.mirror,
    )
    scene = _scene(factors, across, along)
    picture = canvas.shrink(_expose(factors, scene), factor)
    return canvas.to_bytes(picture, factors.noise, factors.noise_seed)


def _scene(factors: KneeFactors, x: Array, y: Array) -> Array:
    """Compose the layers back to front: leg, fibula, femur, tibia, patella, metal."""
    grain = _trabeculae(factors, x, y)
    scene = _leg(factors, x, y)
    femur, femur_lip = _femur(factors, x, y)
    tibia, tibia_lip = _tibia(factors, x, y)
    for depth, density in ((_fibula(x, y), -0.12), (femur, femur_lip), (tibia, tibia_lip)):
        bone = BONE + 0.10 * np.exp(-np.maximum(depth, 0) / 0.014) + grain + density
        # Shadows overlap: where two bones lie behind each other the denser one shows.
        scene = as_float(scene + np.maximum(bone - scene, 0.05) * step(depth, EDGE))
    scene = scene + factors.patella * step(_patella(x, y), 0.025) * step(femur, EDGE)
    metal = step(_implant(factors, x, y), EDGE)
    return as_float(scene + (METAL - scene) * metal)


def _leg(factors: KneeFactors, x: Array, y: Array) -> Array:
    """Shadow of muscle and skin: even around the joint, thinning to air at the sides."""
    waist = factors.soft_tissue + 0.03 * np.cos(3.5 * y + 0.5)
    skin = np.square(x / waist)
    return as_float(AIR + (TISSUE - AIR) * np.sqrt(np.clip(1 - skin * skin, 0, 1)))


def _trabeculae(factors: KneeFactors, x: Array, y: Array) -> Array:
    """Bone is streaked along the leg: fine noise, streaks taller than wide, a coarse cloud."""
    rng = np.random.default_rng(factors.texture_seed)
    texture = 0.022 * canvas.lattice_noise((128, canvas.TEXTURE), rng)
    texture += 0.016 * canvas.lattice_noise((32, 128), rng)
    texture += 0.016 * canvas.lattice_noise((14, 18), rng)
    return canvas.spread(np.float32(factors.texture) * texture, x, y, 1.1)


def _meet(a: Array, b: Array, radius: float) -> Array:
    """Return the minimum of two depths with the corner between them rounded."""
    excess = np.maximum(radius - np.abs(a - b), 0)
    return as_float(np.minimum(a, b) - np.square(excess) / np.float32(4 * radius))


def _plateau(x: Array) -> Array:
    """Height of the tibial surface: two shallow dishes that turn down at the rims."""
    side = np.abs(x)
    return as_float(0.014 * bump(side, 0.27, 0.13) + 1.2 * np.square(np.maximum(side - 0.41, 0)))


def _gap(factors: KneeFactors, x: Array) -> Array:
    """Joint space over the plateau: flat where load is borne, wider at rims and notch."""
    lateral = step(x, 0.1)
    gap = factors.joint_space_medial * (1 - lateral) + factors.joint_space_lateral * lateral
    side = np.abs(x)
    rim = 5.0 * np.square(np.maximum(side - 0.36, 0)) + 3.0 * np.square(np.maximum(0.19 - side, 0))
    return as_float(gap + rim)


def _spur(y: Array, height: float, size: float) -> Array:
    """Outward growth of a bone's side near ``height``, pointed like a lip."""
    return as_float(size * np.exp(-np.abs(y - height) / np.float32(0.03)))


def _femur(factors: KneeFactors, x: Array, y: Array) -> tuple[Array, Array]:
    """Depth below the femur's contour (positive inside) and the brightening of its surface."""
    side = np.abs(x)
    floor = _plateau(x) - _gap(factors, x) - y
    arch = y + factors.joint_space + 0.01
    notch = np.hypot(x / factors.notch, np.minimum(arch, 0) / 0.16) - 1
    epicondyle = 0.5 - 0.02 * step(x, 0.1) - 0.9 * np.square(np.maximum(y + 0.18, 0))
    waist = (0.5 - factors.shaft) * step(-0.56 - y, 0.22)
    margin = -factors.joint_space - 0.075
    width = epicondyle - waist + _spur(y, margin, 1.1 * factors.osteophyte)
    depth = _meet(_meet(floor, width - side, 0.09), 0.11 * notch, 0.05)
    return depth, _sclerosis(factors, floor) * step(as_float(side - 0.14), 0.04)


def _tibia(factors: KneeFactors, x: Array, y: Array) -> tuple[Array, Array]:
    """Depth below the tibia's contour (positive inside) and the brightening of its surface."""
    side = np.abs(x)
    spines = 0.062 * bump(x, -0.05, 0.04) + 0.052 * bump(x, 0.05, 0.035) + 0.02 * bump(x, 0, 0.1)
    top = y - _plateau(x) + spines
    flare = (0.49 - factors.shaft) * step(y - 0.42, 0.34)
    width = 0.49 - flare + _spur(y, 0.03, factors.osteophyte)
    depth = _meet(top, width - side, 0.06)
    return depth, _sclerosis(factors, top) * step(as_float(side - 0.1), 0.03)


def _sclerosis(factors: KneeFactors, depth: Array) -> Array:
    """Dense bone under the joint surface, denser as the disease goes on."""
    density = 0.03 + 0.07 * factors.progress
    return as_float(density * bump(np.maximum(depth, 0), 0.0, 0.05))


def _fibula(x: Array, y: Array) -> Array:
    head = 0.095 - np.hypot(x - 0.45, (y - 0.28) * 0.75)
    shaft = np.minimum(0.05 - np.abs(x - 0.46 - 0.08 * (y - 0.3)), y - 0.27)
    return as_float(np.maximum(head, shaft))


def _patella(x: Array, y: Array) -> Array:
    return as_float(0.21 - np.hypot(x - 0.02, (y + 0.42) * 0.85))


def _implant(factors: KneeFactors, x: Array, y: Array) -> Array:
    """Depth inside the metal; it stays clear of the joint by a third of the bone width."""
    if factors.implant == "none":
        return np.full_like(x, -1.0)
    sign = -1.0 if factors.implant_bone == "femur" else 1.0
    angle = math.radians(factors.implant_angle)
    if factors.implant == "screw":
        dx, dy = x - 0.1 * factors.implant_place, y - sign * 0.46
        u = dx * math.cos(angle) + dy * math.sin(angle)
        v = dy * math.cos(angle) - dx * math.sin(angle)
        thread = 0.016 + 0.005 * np.sin(u * 190)
        rod = np.minimum(thread - np.abs(v), 0.24 - np.abs(u))
        head = np.minimum(0.035 - np.abs(v), 0.022 - np.abs(u - 0.24))
        return as_float(np.maximum(rod, head))
    edge = 0.22 if factors.implant_place > 0 else -0.22
    dx, dy = x - edge, y - sign * 0.62
    plate = np.minimum(0.035 - np.abs(dx), 0.25 - np.abs(dy))
    holes = np.hypot(dx, np.mod(dy, 0.11) - 0.055) - 0.017
    return as_float(np.minimum(plate, holes))


def _expose(factors: KneeFactors, scene: Array) -> Array:
    curved = np.power(np.clip(scene, 0, 1), np.float32(factors.gamma))
    middle = 0.5 + factors.exposure
    return as_float(np.clip(middle + factors.contrast * (curved - 0.5), 0, 1))
