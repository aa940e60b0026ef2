"""What the page shows for a choice of pictures and shares, as HTML; no server, no state."""

import json
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dismix.explore import cards
from dismix.explore.codebook import Book, CodeMaps
from dismix.explore.pictures import as_image, difference, film_strip, highlighted, png
from dismix.explore.recipe import Recipe
from dismix.explore.session import Made, Session
from dismix.explore.subject import UPLOAD, Subject, rank_title
from dismix.explore.takeaway import describe_made
from dismix.graders.base import Grades

DASH, JSON = "  —  ", "application/json"
NEED_START = "Choose a picture or upload one to begin."
NEED_PARTNER = "Choose a partner or upload one."
POLICY_WORDS = {
    "ordinal_mix": ("Ordinal mix", "Severity between the two, appearance of your picture."),
    "nonordinal_mix": ("Non-ordinal mix", "Appearance between the two, severity of your picture."),
    "order_swap": ("Order swap", "Severity of the partner, appearance of your picture."),
    "generate_and_mix": (
        "Generate and mix",
        "Severity between your picture and itself generated at the next grade.",
    ),
}


def choice_title(subject: Subject, ranks: tuple[str, ...]) -> str:
    """Return a line for a list of images: grade, name, split."""
    grade = "not graded" if subject.rank is None else rank_title(subject.rank, ranks)
    return f"{grade}{DASH}{subject.name} ({subject.split})"


def opinion_bars(
    session: Session, *pictures: Tensor, narrow: bool = False
) -> tuple[list[str], Grades | None]:
    """Return a grader's opinion of each picture as bars; empty ones without a grader.

    Args:
        session: An open run.
        *pictures: (channels, H, W) uint8.
        narrow: Bars without names, for small pictures.
    """
    if session.opinion is None:
        return [""] * len(pictures), None
    grades = session.opinion(torch.stack(pictures))
    laws = grades.probabilities.tolist()
    title, draw = f"Grader's opinion ({session.opinion.name})", cards.law_bars
    if narrow:
        title, draw = "Grader", cards.small_law
    return [draw(title, law, session.ranks) for law in laws], grades


def side_card(session: Session, key: str | None, empty: str) -> str:
    """Return a chosen picture with what is known of its grade."""
    if key is None:
        return cards.notice(empty)
    subject, encoded = session.subject(key), session.encoded(key)
    bars = partial(cards.law_bars, names=session.ranks)
    if subject.law is not None:
        known = bars("Annotators", subject.law)
        note = {
            "train": "training image, encoded with its grade",
            "val": "validation image, encoded without its grade",
            "test": "test image, encoded without its grade",
        }[subject.split]
    else:
        known = bars("Generator's own reading", encoded.reading)
        note = "upload; nobody graded it"
    below = known + opinion_bars(session, subject.pixels)[0][0]
    return cards.card(subject.pixels, subject.name, note, below, kind="chosen")


def label_note(session: Session, made: Made) -> str:
    """Say which grade a model would be taught for a made picture."""
    known = session.subject(made.recipe.start).split != UPLOAD
    by = "" if known else " (start read by the generator)"
    return f"taught as grade {rank_title(round(made.rank, 2), session.ranks)}{by}"


def mix_view(
    session: Session,
    start: str | None,
    partner: str | None,
    rank: int | None,
    severity: float,
    appearance: float,
) -> str:
    """Show the made picture, what changed, and the real images nearest to it.

    Args:
        session: An open run.
        start: Key of the picture.
        partner: Key of the partner, if any.
        rank: Grade that severity moves towards; None moves towards the partner's.
        severity: 0..1.
        appearance: 0..1.
    """
    if start is None:
        return cards.notice(NEED_START)
    waiting = ""
    if partner is None and (appearance > 0 or (rank is None and severity > 0)):
        waiting = cards.notice(NEED_PARTNER)
        severity, appearance = severity if rank is not None else 0.0, 0.0
    recipe = Recipe(start, partner, None if rank is None else float(rank), severity, appearance)
    rebuilt, made = session.make(Recipe(start), recipe)
    changed, amount = difference(made.pixels, rebuilt.pixels)
    subject = session.subject(start)
    (before, after), grades = opinion_bars(session, rebuilt.pixels, made.pixels)
    nearest = session.nearest.find(made.pixels) if session.nearest is not None else []
    own = None if grades is None else Grades(
        grades.probabilities[1:], grades.rank[1:], grades.label[1:]
    )  # fmt: skip
    note = describe_made(session, made, grades=own, nearest=nearest)
    made_card = cards.card(
        made.pixels, "Made picture", label_note(session, made),
        cards.law_bars("Training label", made.law, session.ranks) + after + saves(made, note),
        kind="made",
    )  # fmt: skip
    shown = [
        cards.card(subject.pixels, "Your picture", subject.name),
        cards.card(rebuilt.pixels, "Rebuilt", "as the generator sees it, nothing mixed", before),
        made_card,
        cards.card(
            changed, "What changed", f"made against rebuilt: {amount:.1f} % on average; "
            "red brighter, blue darker",
        ),
    ]  # fmt: skip
    return waiting + cards.row(*shown) + _nearest_row(session, nearest)


def _nearest_row(session: Session, nearest: list[Any]) -> str:
    if not nearest:
        return cards.notice("Nearest real images cannot be shown: the run's images are not here.")
    found = []
    for neighbour in nearest:
        subject = session.subject(neighbour.key)
        alike = f"likeness {neighbour.similarity:.2f}"
        if neighbour.similarity >= 0.85:
            alike += ": practically the same picture"
        rank = rank_title(session.encoded(neighbour.key).rank, session.ranks)
        found.append(cards.card(subject.pixels, rank, f"{subject.name}, {alike}"))
    head = cards.heading(
        "Nearest real images",
        "Training images with the most similar fine structure. Likeness goes up to 1; "
        "from 0.85 on the made picture practically is that image.",
    )
    return head + cards.row(*found, kind="dx-small")


def saves(made: Made, note: dict[str, Any]) -> str:
    """Return links that save a made picture and its provenance."""
    name = f"dismix_{made.recipe.policy}_{note['picture'][:8]}"
    text = json.dumps(note, indent=2, ensure_ascii=False) + "\n"
    picture = cards.download(
        png(as_image(made.pixels), note), "image/png", f"{name}.png", "Save picture"
    )
    origin = cards.download(text.encode(), JSON, f"{name}.json", "Save provenance")
    return f'<div class="dx-saves">{picture}{origin}</div>'


def strip_view(session: Session, start: str | None, partner: str | None) -> str:
    """Show one picture from the lowest to the highest severity."""
    if start is None:
        return cards.notice(NEED_START)
    if not session.can_ask and partner is None:
        return cards.notice(NEED_PARTNER)
    frames = session.strip(start, partner)
    opinions = opinion_bars(session, *(frame.pixels for frame in frames), narrow=True)[0]
    own = session.encoded(start).rank
    titles = [rank_title(frame.rank, session.ranks) if frame.rank == int(frame.rank)
              else f"{frame.rank:.2f}".rstrip("0") for frame in frames]  # fmt: skip
    here = min(range(len(frames)), key=lambda i: abs(frames[i].rank - own))
    shown = [
        cards.card(
            frame.pixels, title, "your picture's grade" if i == here else "", opinion,
            kind="chosen" if i == here else "",
        )
        for i, (frame, title, opinion) in enumerate(zip(frames, titles, opinions, strict=True))
    ]  # fmt: skip
    sheet = film_strip([frame.pixels for frame in frames], titles, here)
    notes = {"frames": [describe_made(session, frame) for frame in frames]}
    text = json.dumps(notes, indent=2, ensure_ascii=False) + "\n"
    picture = png(sheet, {"run": notes["frames"][0]["run"]})
    links = cards.download(picture, "image/png", "dismix_strip.png", "Save strip")
    links += cards.download(text.encode(), JSON, "dismix_strip.json", "Save provenance")
    head = cards.heading(
        "The same picture at every grade",
        "Only the severity code changes from frame to frame; appearance stays. If position, "
        "exposure or shape change too, the two codes are not well separated.",
    )
    return head + cards.row(*shown, kind="dx-strip") + f'<div class="dx-saves">{links}</div>'


def swap_view(session: Session, start: str | None, partner: str | None) -> str:
    """Show two pictures with their severity exchanged."""
    if start is None or partner is None:
        return cards.notice(NEED_START if start is None else NEED_PARTNER)
    first, second = session.swap(start, partner)
    plain = session.make(Recipe(start), Recipe(partner))
    made = (first, second)
    opinions = opinion_bars(session, *(m.pixels for m in (*plain, *made)))[0]
    rows = []
    for i, (key, other) in enumerate(((start, "partner"), (partner, "your picture"))):
        subject, whose = session.subject(key), "Your picture" if i == 0 else "Partner"
        changed, amount = difference(made[i].pixels, plain[i].pixels)
        note = describe_made(session, made[i])
        rank = rank_title(session.encoded(key).rank, session.ranks)
        rows.append(cards.row(
            cards.card(subject.pixels, whose, rank),
            cards.card(plain[i].pixels, "Rebuilt", "nothing swapped", opinions[i]),
            cards.card(
                made[i].pixels, f"With the severity of the {other}" if i == 0
                else f"With the severity of {other}", label_note(session, made[i]),
                opinions[2 + i] + saves(made[i], note), kind="made",
            ),
            cards.card(changed, "What changed", f"{amount:.1f} % on average"),
        ))  # fmt: skip
    head = cards.heading(
        "Severity exchanged",
        "Each picture keeps its own appearance and receives the other's severity code.",
    )
    return head + "".join(rows)


def policies_view(session: Session, start: str | None, partner: str | None, share: float) -> str:
    """Show what each mixing policy makes of one pair."""
    if start is None or partner is None:
        return cards.notice(NEED_START if start is None else NEED_PARTNER)
    made = session.policies(start, partner, share)
    opinions = opinion_bars(session, *(m.pixels for m in made.values()))[0]
    one, two = session.subject(start), session.subject(partner)
    sources = [
        cards.card(s.pixels, whose, rank_title(session.encoded(s.key).rank, session.ranks))
        for s, whose in ((one, "Your picture"), (two, "Partner"))
    ]
    shown = []
    for (name, mix), opinion in zip(made.items(), opinions, strict=True):
        title, words = POLICY_WORDS[name]
        below = cards.law_bars(
            f"Training label: {label_note(session, mix).partition('grade ')[2]}", mix.law,
            session.ranks,
        )  # fmt: skip
        note = describe_made(session, mix)
        shown.append(
            cards.card(mix.pixels, title, words, below + opinion + saves(mix, note), kind="made")
        )
    head = cards.heading(
        "Four ways to mix one pair",
        "This is what a model is fed during training, each with the label below it. "
        "Labels between two grades are training targets, not clinical grades.",
    )
    ask = "" if session.can_ask else cards.notice(
        "This generator cannot be asked for a grade, so there is no 'generate and mix'."
    )  # fmt: skip
    return head + ask + cards.row(*sources, *shown, kind="dx-six")


def codebook_view(session: Session, maps: CodeMaps) -> str:
    """Show how the codes are used and where images lie in either code."""
    words = {
        "ordinal": ("Severity codes", "should be ordered by grade"),
        "nonordinal": ("Appearance codes", "grades should be mixed"),
    }
    parts = []
    subjects = [session.subject(key) for key in maps.keys]
    hover = [
        (f"{rank_title(int(rank), session.ranks)}, {s.name}", s.pixels)
        for s, rank in zip(subjects, maps.ranks, strict=True)
    ]
    for name, use in maps.books.items():
        title, wanted = words[name]
        numbers = (
            f"{use.used} of {len(use.counts)} codes in use on {len(maps.keys)} images; as good as "
            f"{use.perplexity:.0f} codes used alike. Bars: how often each is chosen."
        )
        parts.append(
            '<div class="dx-book">' + cards.heading(title, numbers) + cards.bars(use.counts, title)
            + cards.scatter(use.points, maps.ranks, session.ranks, hover,
                            f"Images by their {title.lower()} (t-SNE): {wanted}") + "</div>"
        )  # fmt: skip
    return f'<div class="dx-books">{"".join(parts)}</div>'


def code_view(session: Session, maps: CodeMaps, book: Book, code: int) -> str:
    """Show images that use a code, and where."""
    use = maps.books[book]
    found = use.images_of(code, 12)
    if not found:
        return cards.notice(f"Code {code} is not used by any of these {len(maps.keys)} images.")
    shown = []
    for place, where in found:
        subject = session.subject(maps.keys[place])
        rank = rank_title(int(maps.ranks[place]), session.ranks)
        # A code of the whole picture has no place in it to show.
        pixels = subject.pixels if where.all() else highlighted(subject.pixels, where)
        part = "the whole picture" if where.all() else f"{100 * where.mean():.0f} % of the picture"
        shown.append(cards.card(pixels, rank, f"{subject.name}, {part}"))
    users = int((use.indices == code).any(axis=(1, 2)).sum())
    head = cards.heading(
        f"Code {code}", f"Used by {users} of {len(maps.keys)} images; parts are tinted orange."
    )
    return head + cards.row(*shown, kind="dx-small")
