"""Choose the examples to remove among those that an audit has found."""

from __future__ import annotations

from collections.abc import Collection

from tfshards.prep.auditing.findings import Example, Finding, Kind


def chosen_examples(findings: Collection[Finding], kinds: Collection[Kind]) -> set[Example]:
    """Return the examples of some kinds of findings, of equal or similar ones all but one.

    If an image has several labels, nothing shows which of them is right. Therefore all examples of a conflict
    are returned for the kind ``conflict``; for the kinds ``leak`` and ``duplicate`` without it, none of them.
    """
    of_conflicts = _of_conflicts(findings)
    chosen: set[Example] = set()
    for finding in findings:
        if finding.kind in kinds and finding.kind != "conflict":
            found = {instance.example for instance in finding.instances if instance.example}
            chosen |= found if finding.kind == "size" else found - of_conflicts
    return chosen | of_conflicts if "conflict" in kinds else chosen


def _of_conflicts(findings: Collection[Finding]) -> set[Example]:
    """Return the examples of all conflicts, with those that equal or resemble one of them."""
    similar: dict[Example, set[Example]] = {}
    waiting: list[Example] = []
    for finding in findings:
        for instance in finding.instances:
            if instance.example and instance.like:
                similar.setdefault(instance.example, set()).add(instance.like)
                similar.setdefault(instance.like, set()).add(instance.example)
                if finding.kind == "conflict":
                    waiting.append(instance.example)
    found = set(waiting)
    while waiting:
        new = similar[waiting.pop()] - found
        found |= new
        waiting += new
    return found
