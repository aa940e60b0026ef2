"""How a picture is made: enough to make it again."""

from dataclasses import dataclass

from dismix.errors import DisMixError


@dataclass(frozen=True)
class Recipe:
    """One made picture.

    Attributes:
        start: Key of the picture that is changed.
        partner: Key of the giver, or None.
        rank: Rank that severity moves towards instead of the partner's, or None.
        severity: Share of the giver (or of the asked rank) in the ordinal code, 0..1.
        appearance: Share of the partner in the non-ordinal code, 0..1.
        regenerated: Severity moves towards the start decoded at ``rank`` and encoded again, as
            ``generate_and_mix`` does, rather than towards its code at that rank.

    Example:
        >>> Recipe("train/0", partner="train/4", severity=0.5).policy
        'ordinal_mix'
        >>> Recipe("train/0", partner="train/4", severity=1.0).policy
        'order_swap'
    """

    start: str
    partner: str | None = None
    rank: float | None = None
    severity: float = 0.0
    appearance: float = 0.0
    regenerated: bool = False

    def __post_init__(self) -> None:
        for name in ("severity", "appearance"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise DisMixError(f"{name} is {share:g}", cure="give a share from 0 to 1")
        if self.severity > 0 and self.partner is None and self.rank is None:
            raise DisMixError("severity has nothing to move towards", cure="choose a partner")
        if self.appearance > 0 and self.partner is None:
            raise DisMixError("appearance has nothing to move towards", cure="choose a partner")
        if self.regenerated and (self.rank is None or self.rank != int(self.rank)):
            raise DisMixError("no whole rank is asked for", cure="choose a rank")

    @property
    def policy(self) -> str:
        """The mixing policy that this is, "traverse" towards a rank, or "both" at once."""
        if self.severity and self.appearance:
            return "both"
        if self.appearance:
            return "nonordinal_mix"
        if self.regenerated:
            return "generate_and_mix"
        if self.severity == 0:
            return "rebuilt"
        if self.rank is not None:
            return "traverse"
        return "order_swap" if self.severity == 1 else "ordinal_mix"
