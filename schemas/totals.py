"""The totals of a manifest: what became of the entries of the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tfshards.schemas.json_reader import Json, ObjectReader


@dataclass(frozen=True)
class Totals:
    """How many entries of the source were accepted, rejected and skipped; these add up to ``entries``.

    Attributes:
        entries: number of entries: of a folder everything but directories, of arrays and tables the rows.
        accepted: number of examples in all splits.
        rejected: number of rejected inputs, which is the number of lines in the rejects file.
        skipped: number of entries that are not inputs, such as hidden files.
        reasons: counts by reason, for ``rejected`` and for ``skipped``.
        conversions: number of accepted images by conversion, such as ``orientation applied``.
    """

    entries: int
    accepted: int
    rejected: int = 0
    skipped: int = 0
    reasons: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    conversions: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """Return the totals as JSON values, as in ``dataset.json``."""
        return {
            "entries": self.entries,
            "accepted": self.accepted,
            "rejected": self.rejected,
            "skipped": self.skipped,
            "reasons": {outcome: dict(counts) for outcome, counts in self.reasons.items()},
            "conversions": dict(self.conversions),
        }

    @classmethod
    def read(cls, reader: ObjectReader) -> Totals:
        """Return the totals in ``reader``, and note their problems."""
        reader.only(("entries", "accepted", "rejected", "skipped", "reasons", "conversions"))
        entries, accepted, rejected, skipped = (
            reader.count(name) for name in ("entries", "accepted", "rejected", "skipped")
        )
        together = accepted + rejected + skipped
        if together != entries:
            reader.note("entries", f"is {entries}, but accepted + rejected + skipped is {together}")
        outcomes = reader.object("reasons")
        stated = {"rejected": rejected, "skipped": skipped}
        outcomes.only(stated)
        reasons = {outcome: outcomes.counts(outcome) for outcome in outcomes.value if outcome in stated}
        for outcome, total in stated.items():
            counted = sum(reasons.get(outcome, {}).values())
            if counted != total:
                outcomes.note(outcome, f"adds up to {counted}, but totals.{outcome} is {total}")
        return cls(entries, accepted, rejected, skipped, reasons, reader.counts("conversions"))
