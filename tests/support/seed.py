"""The seed of the generated tests, another one in every run unless the environment gives it."""

import os
import random

SEED = int(os.environ.get("XQL_FFI_TEST_SEED") or random.SystemRandom().randrange(2**32))
