"""Whole epochs of an order, without files."""

import itertools

import numpy as np

from tfshards.loader.order.assignment import lane_start
from tfshards.loader.order.ops import NUMPY
from tfshards.loader.order.ranks import lane_ranks


def step_intervals(assignment, step):
    """Return the positions of a worker's step in row order, as ``(start, count)`` each, without padding."""
    num_positions, index = assignment.num_positions, assignment.worker.index
    if not assignment.lanes:
        start = step * assignment.global_batch_size + index * assignment.batch_size
        return [(start, min(max(num_positions - start, 0), assignment.batch_size))]
    found = []
    for lane in range(index * assignment.worker_lanes, (index + 1) * assignment.worker_lanes):
        start = lane_start(num_positions, assignment.lanes, lane) + step * assignment.rows_per_lane
        end = lane_start(num_positions, assignment.lanes, lane + 1)
        found.append((start, min(max(end - start, 0), assignment.rows_per_lane)))
    return found


def lane_bounds(order):
    """Return the first position of each lane and the end of the last; one lane if the order has none."""
    lanes = max(1, order.lanes)
    return np.arange(lanes + 1) * order.num_positions // lanes


def ranks(order, epoch, lane, start, count):
    """Return starts and counts of the ranks of the positions ``[start, start + count)`` of a lane."""
    if not order.lanes:
        return np.array([start]), np.array([count])
    begin, end = (np.array([each]) for each in lane_bounds(order)[lane : lane + 2])
    entry = epoch.entries[lane : lane + 1]
    pieces = lane_ranks(NUMPY, begin, end, entry, np.array([start]), np.array([count]))
    return tuple(each[0] for each in pieces)


def members_by_position(order, number):
    """Return the member at each position of an epoch."""
    epoch, bounds = order.epoch(np.int64(number)), lane_bounds(order)
    found = []
    for lane, (begin, end) in enumerate(itertools.pairwise(bounds)):
        starts, counts = ranks(order, epoch, lane, begin, end - begin)
        found += [np.arange(s, s + n) for s, n in zip(starts, counts, strict=True)]
    return order.members(epoch, np.concatenate(found))
