"""`dismix generator ablate`: the same training with one part taken away or exchanged.

An ablation is nothing but settings. Where a recipe already goes without a part (the default
one for `tiny` has no similarity term, the paper's shares one z), the ablation adds it
instead and is named so.
"""

import contextlib
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dismix import atomic
from dismix.errors import DisMixError
from dismix.generator.evaluation_text import PAPER_PROBES
from dismix.generator.recipe import Recipe
from dismix.progress import Progress
from dismix.registry import near_names

#: Weight of a term that a recipe goes without, when its ablation adds it.
ADDED = {"similarity": 0.02, "rank_fake": 0.1}


@dataclass(frozen=True)
class Ablation:
    """One changed training.

    Attributes:
        title: What it is, in words.
        settings: What it changes, as for `dismix.generator.recipe.with_settings`.
        paper: Its row in `PAPER_PROBES`, if any.
    """

    title: str
    settings: Mapping[str, Any]
    paper: str | None = None


def list_ablations(recipe: Recipe) -> dict[str, Ablation]:
    """Return the ablations of a recipe by name, the unchanged one first.

    Example:
        >>> from dismix.generator.recipe import PAPER
        >>> list(list_ablations(PAPER))[:4]
        ['full', 'no_reversal', 'no_similarity', 'one_codebook']
    """
    own = {"ordinal_grid": None, "ordinal_trunk": "none", "ordinal_dim": None}
    found = {
        "full": Ablation("the recipe as it is", {}, "full"),
        "no_reversal": Ablation(
            "nothing drives rank out of z_n", {"reversal": 0}, "without gradient reversal"
        ),
    }
    if recipe.weight("similarity") > 0:
        found["no_similarity"] = Ablation(
            "no similarity term", {"similarity": 0}, "without similarity term"
        )
    else:
        added = {"similarity": ADDED["similarity"]}
        found["similarity"] = Ablation("with the similarity term", added)
    found["one_codebook"] = Ablation(
        "one codebook for both codes", {"codebooks": "single", "rank_only": False, **own},
        "one codebook",
    )  # fmt: skip
    if recipe.structure.get("projections", "two") == "two":
        found["shared_z"] = Ablation("one z for both codes", {"projections": "shared", **own})
    else:
        found["two_projections"] = Ablation("a projection for each code", {"projections": "two"})
    other = "hard" if recipe.structure.get("attention", "hard") == "soft" else "soft"
    found[f"{other}_attention"] = Ablation(f"{other} attention", {"attention": other})
    if recipe.weight("rank_fake") > 0:
        found["no_rank_term"] = Ablation("without the discriminator's rank term", {"rank_fake": 0})
    else:
        added = {"rank_fake": ADDED["rank_fake"]}
        found["rank_term"] = Ablation("with the discriminator's rank term", added)
    found["unconditioned"] = Ablation(
        "labels never shown to the ordinal branch", {"conditioned": False, "rank_only": False}
    )
    return found


def run_ablations(
    manifest: str | Path,
    output: str | Path,
    *,
    only: Sequence[str] = (),
    arch: str = "light",
    recipe: str = "default",
    settings: Mapping[str, Any] | None = None,
    judge_epochs: int | None = None,
    progress: Progress | None = None,
    **training: Any,
) -> list[dict[str, Any]]:
    """Train and evaluate every ablation; finished ones are read, not run again.

    Guide and reader are trained once, for they depend on nothing that is taken away. All are read
    by one judge, trained once and kept as ``judge.safetensors``. One that stops
    with a message (a term that is not finite) is noted, and the others still run.

    Args:
        manifest: Data.
        output: Folder: a run folder an ablation, ``ablations.csv`` and ``ablations.md``.
        only: Names to run; all by default.
        arch: Autoencoder's name.
        recipe: Recipe's name.
        settings: Changes common to all.
        judge_epochs: See `dismix.generator.evaluation.evaluate_generator`.
        progress: Called while they run.
        training: ``size``, ``weights``, ``seed``, ``cpu`` and ``cache`` of
            `dismix.generator.start_run.train_generator`.

    Returns:
        A flat row of numbers an ablation, also of those finished earlier.
    """
    from dismix.generator.recipe_choice import choose_recipe

    output = Path(output)
    known = list_ablations(choose_recipe(recipe, arch, settings or {}))
    for name in only:
        if name not in known:
            raise DisMixError(f"unknown ablation '{name}'", cure=near_names(name, [*known]))
    rows: dict[str, dict[str, Any]] = {}
    choices = {
        name: {
            "arch": arch, "recipe": recipe,
            "settings": {**(settings or {}), **ablation.settings},
        }
        for name, ablation in known.items()
    }  # fmt: skip
    for name in [name for name in known if only and name not in only]:
        # Of other data, another seed or other settings it has no place in this table.
        with contextlib.suppress(DisMixError):
            finished = _finished(manifest, output / name, choices[name], training)
            if finished is not None:
                rows[name] = _row(name, known[name], finished)
    for name in only or known:
        try:
            found = _one(manifest, output, name, choices[name], judge_epochs, progress, training)
            rows[name] = _row(name, known[name], found)
        except DisMixError as error:
            rows[name] = {"name": name, "what": known[name].title, "failed": str(error)}
        _write(output, [rows[name] for name in known if name in rows])
    return [rows[name] for name in known if name in rows]


def _finished(
    manifest: str | Path, run: Path, choices: Mapping[str, Any], training: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the evaluation of a finished run; one of other settings is an error."""
    from dismix.generator.evaluation import read_evaluation
    from dismix.generator.run_file import check_same
    from dismix.generator.run_plan import plan_run

    found = read_evaluation(run)
    known = {key: training[key] for key in ("size", "weights", "seed") if key in training}
    if found and check_same(run, plan_run(manifest, **choices, **known).described):
        return found
    return None


def _one(
    manifest: str | Path,
    output: Path,
    name: str,
    choices: Mapping[str, Any],
    judge_epochs: int | None,
    progress: Progress | None,
    training: Mapping[str, Any],
) -> dict[str, Any]:
    from dismix.generator.evaluation import evaluate_generator
    from dismix.generator.judge import JUDGE_FILE
    from dismix.generator.start_run import train_generator

    run = output / name
    if (found := _finished(manifest, run, choices, training)) is not None:
        return found

    def named(text: str, done: int, total: int) -> None:
        if progress is not None:
            progress(f"{name}: {text}", done, total)

    train_generator(
        manifest, run, **choices, resume=True, beside=output, progress=named, **training
    )
    return evaluate_generator(
        run, manifest=manifest, judge=output / JUDGE_FILE, judge_epochs=judge_epochs,
        device="cpu" if training.get("cpu") else None, cache=training.get("cache"),
        progress=named,
    )  # fmt: skip


def _row(name: str, ablation: Ablation, found: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "what": ablation.title, "split": found["split"]}
    for probe, result in found["probes"].items():
        branch, kind = probe.split("_")
        short = {"ordinal": "z_o", "nonordinal": "z_n"}[branch]
        for measure, value in result.items():
            row[f"{short}_{kind}_{measure}"] = value
    row |= {key: found["reconstruction"].get(key) for key in ("psnr", "ssim", "lpips")}
    row["z_n_perplexity"] = found["codebooks"].get("nonordinal", {}).get("perplexity")
    row["mixing_val"] = found["mixing_accuracy"].get("val")
    control = found.get("rank_control", {})
    row["judge_at_ranks"] = " ".join(f"{v:.2f}" for v in control.get("at_ranks", []))
    row["judge_slope"] = control.get("slope")
    row["severity_slope"] = found.get("severity", {}).get("rank_control", {}).get("slope")
    paper = PAPER_PROBES.get(ablation.paper or "", (None, None))
    row |= {"paper_z_o": paper[0], "paper_z_n": paper[1]}
    row["commit"], row["hardware"] = (found["provenance"][k] for k in ("commit", "hardware"))
    row["settings"] = json.dumps(dict(ablation.settings))
    return row


def ablation_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the paper's probe table beside ours, as Markdown."""
    lines = [
        "| training | z_o acc (bal) % | z_n acc (bal) % | z_n conv bal % | paper z_o / z_n % | "
        "PSNR dB | z_n perplexity | judge at ranks | slope |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "failed" in row:
            lines.append(f"| {row['name']} | failed: {row['failed']} | | | | | | | |")
            continue
        pairs = [
            f"{100 * row[f'{z}_linear_accuracy']:.1f} ({100 * row[f'{z}_linear_balanced']:.1f})"
            for z in ("z_o", "z_n")
        ]
        paper = "-" if row["paper_z_o"] is None else f"{row['paper_z_o']} / {row['paper_z_n']}"
        cells = [
            row["name"], *pairs, f"{100 * row['z_n_conv_balanced']:.1f}", paper,
            f"{row['psnr']:.1f}", _number(row["z_n_perplexity"], 0), row["judge_at_ranks"] or "-",
            _number(row["judge_slope"], 2),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _write(output: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write what is known so far."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    atomic.write_text(output / "ablations.csv", text.getvalue())
    made = {row["commit"] + ", " + row["hardware"] for row in rows if "commit" in row}
    note = (
        "\nProbes are fitted on codes of training images and scored on held-out ones, all encoded "
        "without labels. The paper's column is its KOA table. Made with: "
        f"{'; '.join(sorted(made)) or '-'}.\n"
    )
    atomic.write_text(output / "ablations.md", ablation_table(rows) + note)
