"""Run the shard writers on all cores of this machine or on Apache Beam."""
