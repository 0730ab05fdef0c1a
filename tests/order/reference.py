"""The order of an epoch in plain Python: a second definition, which shares no code with the loader.

Examples are named by their numbers in stored order. ``None`` is a row of padding.

1. The members of an epoch are a list of numbers: all examples of the split, the first ones, a part, or those
   of some classes. Of ratios, each group has a quota of the positions, evenly spread over the epoch, and
   continues in the next epoch where this one ended.
2. The list is a circle, entered at a random member and cut into runs. The whole runs are permuted; a shorter
   one comes last. A full permutation has runs of one member, the stored order has no runs.
3. With lanes, the result is cut into equal lanes, and each lane is entered at a random member but the first.
   A global batch has as many members of each lane; workers divide the lanes.
   Without lanes, a global batch is the next members; workers divide the batch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

RUNS, ROTATION, _, _, MAP, LANES = range(6)


@dataclass(frozen=True)
class Stored:
    """What the order depends on besides the options: facts of a split from ``dataset.json``, and labels."""

    build_id: str
    sizes: tuple[int, ...]  # examples of each shard
    num_bytes: int  # of all records, with their frames
    labels: tuple[int, ...] = ()
    is_adopted: bool = False


def mixed(parts):
    """Return the facts of several splits that are read as one."""
    return Stored(
        hashlib.sha256(" ".join(each.build_id for each in parts).encode()).hexdigest()[:8],
        tuple(size for each in parts for size in each.sizes),
        sum(each.num_bytes for each in parts),
        is_adopted=any(each.is_adopted for each in parts),
    )


def random_bits(seed, *words):
    """Return 63 bits: the state of SplitMix64, to which each word is added before it steps."""
    state = seed % 2**64
    for word in words:
        state = (state + word + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state >> 1


def order_seed(seed, build_id):
    """Return the seed of a dataset's order, so that datasets differ under one seed."""
    digest = hashlib.sha256(f"{seed} {build_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def taken(numbers, take):
    """Return the first numbers, one of several equal parts, or all but that part."""
    if take is None:
        return numbers
    if isinstance(take, int):
        return numbers[:take]
    low, high = (len(numbers) * index // take.count for index in (take.index, take.index + 1))
    return numbers[:low] + numbers[high:] if take.rest else numbers[low:high]


def quotas_of(weights, total):
    """Return integers in these ratios, by the method of largest remainders."""
    exact = [weight / sum(weights) * total for weight in weights]
    quotas = [int(each) for each in exact]
    by_remainder = sorted(range(len(weights)), key=lambda group: quotas[group] - exact[group])
    for group in by_remainder[: total - sum(quotas)]:
        quotas[group] += 1
    return quotas


def members_of(groups, ratios, take, epoch):
    """Return the members of an epoch in stored order, from groups of numbers; ``ratios`` may be None."""
    if ratios is None:
        return taken(groups[0], take)
    is_number = isinstance(take, int)
    groups = [taken(group, None if is_number else take) for group in groups]
    quotas = quotas_of(ratios, take if is_number else sum(map(len, groups)))
    turns = ((group, turn) for group, quota in enumerate(quotas) for turn in range(quota))
    spread = sorted(turns, key=lambda each: ((each[1] + 0.5) / quotas[each[0]], each))
    return [groups[group][(turn + epoch * quotas[group]) % len(groups[group])] for group, turn in spread]


def num_lanes(stored, shuffle, batch_size, workers):
    """Return the lanes of all workers, 0 without lanes."""
    if shuffle is None or shuffle.how == "full":
        return 0
    most = max(1, 256 // workers)
    largest = max(lanes for lanes in range(1, batch_size + 1) if batch_size % lanes == 0 and lanes <= most)
    return shuffle.lanes or workers * largest


def run_length(stored, shuffle, lanes, num_members):
    """Return the members of a run: about 1 MiB, less in small splits and where neighbors are similar."""
    if shuffle is None or shuffle.how == "full":
        return 0 if shuffle is None else 1
    num_bytes, runs_of_lane = (128 << 10, 8) if stored.is_adopted else (1 << 20, 2)
    mean = max(1, stored.num_bytes / max(1, sum(stored.sizes)))
    return shuffle.run or max(2, min(int(num_bytes / mean), num_members // (runs_of_lane * lanes)))


def shuffled(members, seed, epoch, run, lanes):
    """Return the members of an epoch lane by lane; one lane if ``lanes`` is 0."""
    count = len(members)
    whole = count // run
    runs = sorted(range(whole), key=lambda number: random_bits(seed, RUNS, epoch, number))
    runs += [whole] if count % run else []
    first = random_bits(seed, ROTATION, epoch)
    circle = [members[(first + i) % count] for n in runs for i in range(n * run, min(n * run + run, count))]
    cut = [circle[lane * count // lanes : (lane + 1) * count // lanes] for lane in range(lanes)]
    if lanes and count >= 2 * lanes:
        for number, lane in enumerate(cut):
            entry = 1 + random_bits(seed, LANES, epoch, number) % (len(lane) - 1)
            lane[:] = lane[entry:] + lane[:entry]
    return cut or [circle]


def batches_of(stored, groups, epoch, *, batch_size, workers, shuffle, remainder, ratios=None, take=None):
    """Return the rows of each batch of an epoch: a list of steps, each a list of workers."""
    members, whole = members_of(groups, ratios, take, epoch), batch_size * workers
    lanes = num_lanes(stored, shuffle, batch_size, workers)
    run = run_length(stored, shuffle, lanes, len(members))
    if run:
        seed = order_seed(shuffle.seed, stored.build_id)
        by_lane = shuffled(members, seed, epoch, run, lanes)
    else:
        by_lane = [members]
    steps, rows = [], whole // len(by_lane)
    for step in range(len(members) // whole if remainder == "drop" else -(-len(members) // whole)):
        row = []
        for lane in by_lane:
            part = lane[step * rows : (step + 1) * rows]
            row += part + [None] * (rows - len(part))
        shares = [row[worker * batch_size : (worker + 1) * batch_size] for worker in range(workers)]
        if remainder == "keep":
            shares = [[number for number in share if number is not None] for share in shares]
        steps.append(shares)
    return steps
