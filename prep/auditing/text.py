"""Format the result of an audit as text and as JSON."""

from __future__ import annotations

from tfshards.prep.auditing.audit import Audit
from tfshards.prep.auditing.findings import Example, Finding, Instance
from tfshards.schemas.json_reader import Json
from tfshards.schemas.summary import class_lines, escaped

_SHOWN_INSTANCES = 5


def audit_text(made: Audit) -> str:
    """Return the findings with their first instances, the notes, and the number of examples by class."""
    lines = [line for finding in made.findings for line in _finding_lines(finding)] or ["no findings"]
    lines += [f"note: {escaped(note)}" for note in made.notes]
    if made.label_counts:
        # a split without any label has examples without classes, rather than none of each
        lines += class_lines(
            {split: counts if any(counts.values()) else {} for split, counts in made.label_counts.items()}
        )
    return "\n".join(lines)


def audit_json(made: Audit) -> dict[str, Json]:
    """Return all findings, with every instance."""
    return {
        "num_examples": dict(made.num_examples),
        "label_counts": {split: dict(counts) for split, counts in made.label_counts.items()},
        "findings": [
            {
                "kind": finding.kind,
                "message": finding.message,
                "count": len(finding.instances),
                "instances": [
                    {
                        "detail": instance.detail,
                        "example": _example_json(instance.example),
                        "like": _example_json(instance.like),
                    }
                    for instance in finding.instances
                ],
            }
            for finding in made.findings
        ],
        "notes": list(made.notes),
    }


def _finding_lines(finding: Finding) -> list[str]:
    lines = [f"{finding.kind}: {escaped(finding.message)}"]
    lines += [f"    {_instance_text(instance)}" for instance in finding.instances[:_SHOWN_INSTANCES]]
    more = len(finding.instances) - _SHOWN_INSTANCES
    return lines + ([f"    and {more:,} more"] if more > 0 else [])


def _instance_text(instance: Instance) -> str:
    examples = [_example_text(example) for example in (instance.example, instance.like) if example]
    return f"{' = '.join(examples)}: {escaped(instance.detail)}" if examples else escaped(instance.detail)


def _example_text(example: Example) -> str:
    label = "" if example.label is None else f", {escaped(example.label)}"
    return f"{escaped(example.key)} ({example.split}{label})"


def _example_json(example: Example | None) -> Json:
    if example is None:
        return None
    return {"split": example.split, "key": example.key, "label": example.label}
