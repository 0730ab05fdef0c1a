"""Elements of a Beam pipeline: keys with features, which any worker may hold and the plan does not."""
