from hypothesis import HealthCheck, settings

# A busy machine is no fault of the code: examples are bounded by number, not by time.
settings.register_profile("schemas", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("schemas")
