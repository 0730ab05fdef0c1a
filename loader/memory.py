"""Memory in bytes: how much there is, and how much of it an option allows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tfshards.schemas import OptionsError
from tfshards.schemas.sizes import parse_size

_LEAST = 1 << 20


def budget_bytes(memory_budget: str | int | None) -> int | None:
    """Return the bytes of an option such as ``"2GiB"`` or ``2 << 30``; None for None.

    Raises:
        OptionsError: it is neither, or less than 1 MiB.
    """
    if memory_budget is None:
        return None
    if isinstance(memory_budget, str):
        num_bytes = parse_size(memory_budget, "memory_budget")
    elif isinstance(memory_budget, (int, np.integer)) and not isinstance(memory_budget, bool):
        num_bytes = int(memory_budget)
    else:
        raise OptionsError(f'memory_budget={memory_budget!r} must be a size such as "2GiB", or bytes')
    if num_bytes < _LEAST:
        raise OptionsError(f"memory_budget={memory_budget!r} must be at least 1MiB; a number counts bytes")
    return num_bytes


def available_memory(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still take, or None where the system does not say.

    The least of what the host has and what each control group above the process leaves, whose file cache the
    kernel gives back.

    Args:
        root: of ``/proc`` and ``/sys``.
    """
    found = []
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            found.append(int(value.split()[0]) * 1024)
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found += _group(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            names = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            found += _group(root / "sys/fs/cgroup/memory", path, *names)
    return max(0, min(found)) if found else None


def _group(mounted: Path, path: str, limit_name: str, used_name: str, cache_name: str) -> list[int]:
    """Return what a control group and those above it leave."""
    left = []
    group = mounted / path.lstrip("/")
    # A container sees its own group at the mount's root, under a path that is the host's.
    for each in [group, *group.parents]:
        limit, used = "".join(_lines(each / limit_name)), "".join(_lines(each / used_name))
        if limit.isdigit() and used.isdigit():
            words = (line.split() for line in _lines(each / "memory.stat"))
            cached = sum(int(word[1]) for word in words if word[0] == cache_name)
            left.append(int(limit) - int(used) + cached)
        if each == mounted:
            break
    return left


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
