"""Draw docs/assets/two_factors.png: severity alone moves, then appearance alone moves."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dismix.data.phantom import PhantomSpec, draw_factors, render

SIZE, GAP, TOP = 112, 4, 26
TARGET = Path(__file__).resolve().parent.parent / "docs" / "assets" / "two_factors.png"


def main() -> None:
    """Write the picture."""
    width = 9 * (SIZE + GAP) + 4 * GAP
    sheet = Image.new("RGB", (width, TOP + 2 * (SIZE + GAP)), "white")
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(14)
    draw.text((2, 4), "severity moves, appearance stays", "black", font)
    draw.text((5 * (SIZE + GAP) + 4 * GAP, 4), "appearance moves, severity stays", "black", font)
    for row, subject in enumerate(("knee", "fundus")):
        spec = PhantomSpec(subject=subject)
        person = draw_factors(spec, 2, np.random.default_rng(11))
        pictures = [render(replace(person, severity=float(s), rank=s), SIZE) for s in range(5)]
        for seed in (3, 5, 8, 14):
            other = draw_factors(spec, 2, np.random.default_rng(seed))
            pictures.append(render(replace(other, severity=2.0), SIZE))
        for column, pixels in enumerate(pictures):
            left = column * (SIZE + GAP) + (4 * GAP if column >= 5 else 0)
            sheet.paste(Image.fromarray(pixels).convert("RGB"), (left, TOP + row * (SIZE + GAP)))
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    sheet.quantize(128).save(TARGET, optimize=True)
    print(f"{TARGET} {TARGET.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
