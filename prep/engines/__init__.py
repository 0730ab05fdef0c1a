"""Run a function over items: on Apache Beam, or on threads of this process."""
