"""The table ``mixes.csv``: how each written mix was made, enough to make it again."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from dismix import atomic
from dismix.errors import DisMixError
from dismix.labels import OrdinalTarget
from dismix.mixing.maker import StoredMixes
from dismix.mixing.nearest import Nearest
from dismix.mixing.policy_draws import GENERATE_AND_MIX, POLICIES, PolicyDraws

TABLE = "mixes.csv"


def image_name(number: int) -> str:
    """Return the file of a mix, relative to its folder.

    Example:
        >>> image_name(41)
        'images/mix_000041.png'
    """
    return f"images/mix_{number:06d}.png"


def mix_table(
    mixes: StoredMixes, target: OrdinalTarget, names: list[str], seed: int, near: Nearest
) -> pd.DataFrame:
    """Return one row a mix.

    Args:
        mixes: How B mixes are made.
        target: Their labels.
        names: Names of the N stored images.
        seed: Seed of all of them.
        near: Their nearest training images.
    """
    choices, anchor = mixes.choices, mixes.anchor.tolist()
    policy = choices.policy
    # A generated picture takes the partner's place, and only there a rank is asked for.
    asks = (policy == GENERATE_AND_MIX).numpy()
    partner = pd.array(choices.partner.numpy(), dtype="Int64")
    asked = pd.array(choices.asked.numpy(), dtype="Int64")
    partner[asks], asked[~asks] = pd.NA, pd.NA
    sources = np.stack([mixes.anchor.numpy(), np.where(asks, -1, choices.partner.numpy())])
    return pd.DataFrame(
        {
            "image": [image_name(number) for number in range(len(mixes))],
            "policy": [POLICIES[p] for p in policy.tolist()],
            # Nine digits name a float32 exactly.
            "lam": [f"{lam:.9g}" for lam in choices.lam.tolist()],
            "anchor": anchor,
            "anchor_image": [names[row] for row in anchor],
            "partner": partner,
            "partner_image": [None if pd.isna(row) else names[int(row)] for row in partner],
            "asked_rank": asked,
            "from_partner": choices.from_partner.numpy(),
            "adjacent": choices.adjacent.numpy(),
            "rank": [f"{rank:.6g}" for rank in target.rank.tolist()],
            "seed": seed,
            "nearest_image": [names[row] for row in near.row],
            "similarity": near.similarity.round(4),
            "nearest_is_source": (sources == near.row).any(axis=0),
        }
    )


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write it as CSV, atomically."""
    with atomic.replacing(path) as temporary:
        table.to_csv(temporary, index=False, lineterminator="\n")


def read_mixes(path: str | Path) -> StoredMixes:
    """Read the choices back; `MixMaker.pictures` then makes the same pictures.

    Args:
        path: ``mixes.csv`` or its folder.
    """
    path = Path(path)
    path = path / TABLE if path.is_dir() else path
    try:
        table = pd.read_csv(path)
        anchor = torch.tensor(table["anchor"].to_numpy(np.int64))
        policy = [POLICIES.index(name) for name in table["policy"]]
        asked = table["asked_rank"].fillna(0).to_numpy(np.int64)
        choices = PolicyDraws(
            policy=torch.tensor(policy, dtype=torch.long),
            lam=torch.tensor(table["lam"].to_numpy(np.float64)).float(),
            from_partner=torch.tensor(table["from_partner"].to_numpy(bool)),
            partner=torch.tensor(table["partner"].fillna(table["anchor"]).to_numpy(np.int64)),
            asked=torch.tensor(asked),
            adjacent=torch.tensor(table["adjacent"].to_numpy(bool)),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DisMixError(
            f"is not a table of mixes ({error})",
            file=path,
            cure="give what `dismix mix write` made",
        ) from error
    return StoredMixes(anchor, choices)


def summary(table: pd.DataFrame, same: float, names: Sequence[str]) -> list[str]:
    """Return lines about the written mixes.

    Args:
        table: From `mix_table`.
        same: Similarity from which a mix counts as a copy of a training image.
        names: What the C ranks are called.
    """
    counts = table["policy"].value_counts()
    ranks = pd.to_numeric(table["rank"])
    whole = np.bincount(np.floor(ranks + 0.5).astype(int), minlength=len(names))
    lines = [
        "policies: " + ", ".join(f"{name} {counts[name]}" for name in POLICIES if name in counts),
        "nearest whole rank: " + ", ".join(f"{names[rank]}: {n}" for rank, n in enumerate(whole)),
    ]
    lonely = int((~table["adjacent"]).sum())
    if lonely:
        lines.append(f"{lonely} mixes had no partner of a neighbouring rank: same rank instead")
    copies = int((table["similarity"] >= same).sum())
    lines.append(
        f"nearest training image: similarity {table['similarity'].median():.2f} in the middle,"
        f" {table['similarity'].max():.2f} at most; {table['nearest_is_source'].mean():.0%} are a"
        f" source of the mix; {copies} mixes are practically a training image (>= {same})"
    )
    return lines
