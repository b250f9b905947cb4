"""What holds for every test: Hypothesis has no deadline, as machines differ and are shared."""

from hypothesis import settings

settings.register_profile("attngen", deadline=None, print_blob=True)
settings.load_profile("attngen")
