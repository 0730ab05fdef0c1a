"""From records to batches of examples: parse, decode, augment, map, weigh."""
