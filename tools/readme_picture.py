"""Draw docs/assets/two_factors.png: severity alone moves, then appearance alone moves."""

from pathlib import Path

from dismix.demo.pictures import two_factors

TARGET = Path(__file__).resolve().parent.parent / "docs" / "assets" / "two_factors.png"


def main() -> None:
    """Write the picture."""
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    two_factors().quantize(128).save(TARGET, optimize=True)
    print(f"{TARGET} {TARGET.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
