from hypothesis import HealthCheck, settings

# The number of examples is bounded, not their time, so that a busy machine fails no test.
settings.register_profile("schemas", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("schemas")
