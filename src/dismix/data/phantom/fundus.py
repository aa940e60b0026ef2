"""A fundus photograph of the left eye, drawn from its factors.

The frame is in field radii: temporal at positive x, y downwards. The picture is healthy
retina times one colour per material. The materials are chosen to be separable in three
channels: vessels darken and the optic disc, macula and texture move along the same line in
colour space, while haemorrhages and exudates each leave it in a direction of their own.
"""

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from dismix.data.phantom import canvas
from dismix.data.phantom.canvas import Array, as_float, bump, step
from dismix.data.phantom.factors import FundusFactors
from dismix.data.phantom.lesions import Lesion, lesions
from dismix.data.phantom.vessels import vessel_tree

# Change of (red, green, blue) relative to healthy retina where a material fills the cell.
VESSEL = np.array([-0.06, -0.5, -0.5], dtype=np.float32)
HAEMORRHAGE = np.array([-0.5, -0.7, -0.7], dtype=np.float32)
EXUDATE = np.array([0.25, 0.8, -0.2], dtype=np.float32)
# The disc is paler than "less vessel" alone: it also lacks what haemorrhages are made of.
DISC = -1.1 * VESSEL - 0.35 * HAEMORRHAGE
# Half-width of lesions' blurred rims, in field radii.
SOFT, WOOLLY = 0.018, 0.05


def render_fundus(factors: FundusFactors, size: int) -> NDArray[np.uint8]:
    """Draw one fundus.

    Args:
        factors: What to draw.
        size: Side of the picture in pixels, at least 32.

    Returns:
        Colour picture, (size, size, 3).
    """
    factor = canvas.supersampling(size)
    x, y = canvas.unit_grid(size, factor)
    across, along = canvas.place(
        x,
        y,
        rotation=factors.rotation,
        zoom=factors.field,
        offset=(factors.offset_x, factors.offset_y),
        mirror=factors.mirror,
    )
    amounts = _materials(factors, across, along, size * factor)
    light = _light(factors, x, y) * step(1 - np.sqrt(across**2 + along**2), 0.012)
    channels = []
    for i, level in enumerate(_retina(factors)):
        ratio = 1 + sum(amount * material[i] for amount, material in amounts)
        linear = np.clip(level * light * ratio, 0, 1)
        channels.append(canvas.shrink(np.power(linear, np.float32(factors.gamma)), factor))
    picture = np.stack(channels, axis=-1)
    return canvas.to_bytes(picture, factors.noise, factors.noise_seed)


def _materials(
    factors: FundusFactors, x: Array, y: Array, cells: int
) -> list[tuple[Array, NDArray[np.float32]]]:
    """Amount of every material per cell, (cells, cells), with its colour."""
    disc = _disc(factors, x, y)
    red_free = _pigment(factors, x, y) + _vessel_cover(factors, cells) * (1 - 0.45 * disc)
    dark, bright = _lesion_cover(factors, cells)
    healthy = 1 - dark - bright
    return [
        (healthy * disc, DISC),
        (healthy * red_free, VESSEL),
        (dark, HAEMORRHAGE),
        (bright, EXUDATE),
    ]


def _retina(factors: FundusFactors) -> tuple[float, float, float]:
    red = factors.red * factors.exposure
    return red, red * factors.green, red * factors.green * factors.blue


def _light(factors: FundusFactors, x: Array, y: Array) -> Array:
    """Uneven light of the camera, in the picture's frame: a slope and a fall-off to the rim."""
    u, v = (x - factors.offset_x) / factors.field, (y - factors.offset_y) / factors.field
    slope = factors.light_x * u + factors.light_y * v
    return as_float(np.exp(slope - factors.vignette * (u * u + v * v)))


def _pigment(factors: FundusFactors, x: Array, y: Array) -> Array:
    """What tints the retina itself, in amounts of vessel colour: macula and choroid."""
    zoom = factors.zoom
    rng = np.random.default_rng(factors.texture_seed)
    texture = canvas.lattice_noise((24, 24), rng) + 0.7 * canvas.lattice_noise((90, 90), rng)
    amount = np.float32(0.09 * factors.texture) * canvas.spread(texture, x, y, 1.1)
    fovea = np.square(x - (factors.disc_x + 0.72) * zoom) + np.square(y - 0.05 * zoom)
    return as_float(amount + factors.macula * np.exp(-fovea / (0.16 * zoom) ** 2))


def _disc(factors: FundusFactors, x: Array, y: Array) -> Array:
    """The optic disc: a pale oval with a paler cup and a faint glow around it."""
    zoom = factors.zoom
    dx, dy = (x - factors.disc_x * zoom) / zoom, (y - factors.disc_y * zoom) / (1.12 * zoom)
    radius = np.sqrt(dx * dx + dy * dy) / factors.disc_size
    disc = step(1 - radius, 0.09)
    glow = 0.2 * np.exp(-np.square(np.maximum(radius - 1, 0) / 0.5))
    return as_float(0.85 * disc + 0.35 * bump(radius, 0.0, 0.5) + glow * (1 - disc))


def _to_cells(
    factors: FundusFactors, points: NDArray[np.float64], cells: int
) -> NDArray[np.float64]:
    """Map points of the field, (..., 2), to places on a grid of ``cells`` per side."""
    angle = math.radians(factors.rotation)
    x = -points[..., 0] if factors.mirror else points[..., 0]
    y = points[..., 1]
    u = (math.cos(angle) * x - math.sin(angle) * y) * factors.field + factors.offset_x
    v = (math.sin(angle) * x + math.cos(angle) * y) * factors.field + factors.offset_y
    return np.asarray(np.stack([u, v], axis=-1) * cells + (0.5 * cells - 0.5))


def _vessel_cover(factors: FundusFactors, cells: int) -> Array:
    """Strength of vessel colour, (cells, cells)."""
    tree = vessel_tree(
        factors.vessel_seed, factors.disc_x, factors.disc_y, 0.034 * factors.vessel_width
    )
    sheet = Image.new("L", (2 * cells, 2 * cells))
    pen = ImageDraw.Draw(sheet)
    ends = _to_cells(factors, tree.stretches * factors.zoom, 2 * cells).reshape(-1, 4)
    widths = tree.widths * (factors.zoom * factors.field * 2 * cells)
    # A line cannot be thinner than a cell: it is drawn paler instead.
    inks = np.rint(255 * tree.strengths * np.minimum(widths, 1)).astype(int)
    pixels = np.rint(np.maximum(widths, 1)).astype(int)
    for stretch, ink, width in zip(ends.tolist(), inks.tolist(), pixels.tolist(), strict=True):
        pen.line(stretch, fill=ink, width=width)
    return np.asarray(sheet.reduce(2), dtype=np.float32) / np.float32(255)


def _lesion_cover(factors: FundusFactors, cells: int) -> tuple[Array, Array]:
    """Cover by dark and by bright lesions, two arrays (cells, cells) in [0, 1]."""
    dark, bright = np.zeros((2, cells, cells), dtype=np.float32)
    scale = factors.field * cells
    for lesion in lesions(factors):
        ((column, row),) = _to_cells(factors, np.array([[lesion.x, lesion.y]]), cells)
        sheet = dark if lesion.kind in {"dot", "blot"} else bright
        _stamp(sheet, float(column), float(row), lesion, scale)
    return np.minimum(dark, 1), np.minimum(bright, 1)


def _stamp(sheet: Array, column: float, row: float, lesion: Lesion, scale: float) -> None:
    """Add one lesion to a sheet: a disc whose rim wavers, of exactly the lesion's load."""
    soft = (WOOLLY if lesion.kind == "wool" else SOFT) * scale
    radius = math.sqrt(lesion.area / math.pi) * scale
    reach = math.ceil(radius * (1 + sum(height for height, _ in lesion.waver)) + soft + 1)
    top, left = max(0, int(row) - reach), max(0, int(column) - reach)
    window = sheet[top : int(row) + reach + 2, left : int(column) + reach + 2]
    y = np.arange(top, top + window.shape[0], dtype=np.float32)[:, None] - np.float32(row)
    x = np.arange(left, left + window.shape[1], dtype=np.float32) - np.float32(column)
    rim = np.full_like(window, radius)
    if lesion.waver:
        angle = np.arctan2(y, x)
        for k, (height, phase) in enumerate(lesion.waver):
            rim += np.float32(radius * height) * np.cos((k + 2) * angle + np.float32(phase))
    cover = step(as_float(rim - np.sqrt(x * x + y * y)), soft)
    total = float(cover.sum())
    if total > 0:
        window += cover * np.float32(lesion.area * lesion.density * scale**2 / total)
