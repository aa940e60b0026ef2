"""What a data check found, as text for people and as plain values for scripts."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
#: Findings of one kind that the text shows before it only counts the rest.
SHOWN = 20


@dataclass(frozen=True)
class Finding:
    """One thing found.

    Args:
        level: "error" (do not train on this), "warning" (look at it) or "note".
        code: Short machine-readable name of the kind of finding.
        message: What was found and where, in one line.
        rows: 1-based lines of the manifest concerned.
        files: Image files concerned, as the manifest names them.
        cure: What to do about it.
    """

    level: Level
    code: str
    message: str
    rows: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    cure: str = ""

    def __str__(self) -> str:
        return self.message + (f"; {self.cure}" if self.cure else "")


@dataclass(frozen=True)
class Report:
    """All findings on one data set.

    Args:
        title: What was checked.
        ranks: Names, low to high.
        counts: Images of each rank by split.
        findings: Most severe first.
        images_checked: Whether the image files were opened.
        soft: How many of the counted images have a soft label only.
    """

    title: str
    ranks: tuple[str, ...] = ()
    counts: dict[str, list[int]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    images_checked: bool = False
    soft: int = 0

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return not self.of("error")

    def of(self, *names: str) -> list[Finding]:
        """Return the findings with one of these levels or codes."""
        return [f for f in self.findings if f.level in names or f.code in names]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "title": self.title,
            "ok": self.ok,
            "ranks": list(self.ranks),
            "counts": self.counts,
            "soft": self.soft,
            "images_checked": self.images_checked,
            "findings": [
                {**asdict(f), "rows": list(f.rows), "files": list(f.files)} for f in self.findings
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.title}: {self._counted()}, {len(self.ranks)} ranks"]
        if self.counts:
            lines.append("        " + " / ".join(self.ranks))
        lines += [f"  {s:<6}" + " / ".join(map(str, c)) for s, c in self.counts.items()]
        seen: Counter[str] = Counter()
        kinds = Counter(f.code for f in self.findings)
        for finding in self.findings:
            seen[finding.code] += 1
            if seen[finding.code] <= SHOWN:
                lines.append(f"{finding.level:<8} {finding.code:<18} {finding}")
            elif seen[finding.code] == SHOWN + 1:
                more = kinds[finding.code] - SHOWN
                lines.append(f"{finding.level:<8} {finding.code:<18} ... and {more} more")
        levels = Counter(f.level for f in self.findings)
        summary = ", ".join(f"{levels[v]} {v}{'' if levels[v] == 1 else 's'}" for v in LEVELS)
        opened = "" if self.images_checked else " (image files not opened)"
        return "\n".join([*lines, summary + opened])

    def _counted(self) -> str:
        graded = sum(map(sum, self.counts.values())) - self.soft
        kinds = [f"{graded} graded images"] if graded or not self.soft else []
        kinds += (
            [f"{self.soft} image{'' if self.soft == 1 else 's'} with soft labels"]
            if self.soft
            else []
        )
        return " and ".join(kinds)


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings most severe first, otherwise in their order.

    Example:
        >>> found = [Finding("note", "a", "small"), Finding("error", "b", "large")]
        >>> [f.code for f in by_severity(found)]
        ['b', 'a']
    """
    return tuple(sorted(findings, key=lambda f: LEVELS.index(f.level)))
