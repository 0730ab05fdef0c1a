"""Run a function over items: in processes of this machine, or on Apache Beam; transforms for pipelines."""
