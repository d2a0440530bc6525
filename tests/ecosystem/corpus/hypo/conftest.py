from hypothesis import settings

settings.register_profile("fixed", derandomize=True, database=None)
