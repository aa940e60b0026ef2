"""The paper's numbers (Pitawela, Carneiro and Chen), to stand beside ours.

``paper_results.csv`` holds its result tables as printed: accuracy in per cent, mean absolute
error in ranks, standard deviation over three runs where it gives one.
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

MIXERS = {
    "none": "no mixing", "mixup": "Mixup", "cutmix": "CutMix", "puzzlemix": "PuzzleMix",
    "comixup": "CoMix", "guidedmixup": "GuidedMix", "diffusemix": "DiffuseMix",
    "filtermix": "FilterMix", "dismix": "DisMix",
}  # fmt: skip
"""Our names -> the paper's; "none" and FilterMix are not in the paper."""

PAPER_MIXERS = (
    "mixup", "cutmix", "puzzlemix", "comixup", "guidedmixup", "diffusemix", "dismix",
)  # fmt: skip
GRADERS = {
    "poe": "POE", "gol": "GOL", "mwr": "MWR", "rnc": "RNC", "ord2seq": "ORD2SEQ", "cloc": "CLOC",
}  # fmt: skip
DATA = {"idrid": "IDRID", "koa": "KOA", "chaoyang": "CHAOYANG", "gleason": "GLEASON"}
POLICIES = {
    "ordinal_mix": "Ordinal Mix", "generate_and_mix": "Generate & Mix",
    "nonordinal_mix": "Non-Ordinal Mix", "order_swap": "Order Swap",
}  # fmt: skip
GROUPS = {"interpolating": "Interpolating", "preserving": "Preserving"}

_ALIASES = {"crowdgleason": "gleason"}


@dataclass(frozen=True)
class PaperNumber:
    """A printed number: mean, and standard deviation where given."""

    mean: float
    sd: float | None

    def text(self, digits: int = 2) -> str:
        """Return it as printed.

        Example:
            >>> PaperNumber(66.02, 0.98).text()
            '66.02 ± 0.98'
        """
        tail = "" if self.sd is None else f" ± {self.sd:.{digits}f}"
        return f"{self.mean:.{digits}f}{tail}"


@cache
def _numbers() -> dict[tuple[str, str, str, str, str], PaperNumber]:
    text = (files("dismix.bench") / "paper_results.csv").read_text(encoding="utf-8")
    found = {}
    for row in csv.DictReader(text.splitlines()):
        key = (row["table"], row["dataset"], row["classifier"], row["setting"], row["metric"])
        sd = float(row["std"]) if row["std"] else None
        found[key] = PaperNumber(float(row["mean"]), sd)
    return found


def data_key(name: str) -> str:
    """Return the paper's key of a data set, or the name in lower case when it has none.

    Example:
        >>> data_key("CrowdGleason"), data_key("IDRiD"), data_key("My Knees")
        ('gleason', 'idrid', 'my knees')
    """
    low = name.strip().lower()
    plain = "".join(c for c in low if c.isalnum())
    plain = _ALIASES.get(plain, plain)
    return plain if plain in DATA else low


def find_number(
    table: str, data: str, grader: str, setting: str, metric: str
) -> PaperNumber | None:
    """Return a number of the paper, None where it has none.

    Args:
        table: As in the file: main, scarcity, policies, ...
        data: Our key of the data set.
        grader: Our name of the grader.
        setting: The paper's words: a mixer, a policy, ...
        metric: "accuracy" or "mae", for the extreme settings followed by ":scarcity" or
            ":variability70".

    Example:
        >>> find_number("main", "idrid", "cloc", "DisMix", "accuracy")
        PaperNumber(mean=66.02, sd=0.98)
    """
    return _numbers().get(
        (table, DATA.get(data, data), GRADERS.get(grader, grader), setting, metric)
    )


def paper_scores(metric: str, table: str = "main") -> dict[tuple[str, ...], dict[str, float]]:
    """Return means of a table by (data set, grader) and our mixer names, for counting."""
    ours = {words: name for name, words in MIXERS.items()}
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for (which, data, grader, setting, measure), number in _numbers().items():
        if which == table and measure == metric:
            found.setdefault((data, grader), {})[ours.get(setting, setting)] = number.mean
    return found


def table_graders(table: str, data: str) -> list[str]:
    """Return the graders, by our names, for which the paper gives a table of a data set.

    Example:
        >>> table_graders("scarcity", "koa"), table_graders("clean_labels", "gleason")
        (['ord2seq', 'cloc'], [])
    """
    words = {key[2] for key in _numbers() if key[:2] == (table, DATA.get(data, data))}
    return [name for name, title in GRADERS.items() if title in words]
