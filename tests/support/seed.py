"""The seed of the generated tests.

The same in every run, so that a run can be repeated, unless XQL_FFI_TEST_SEED gives another one; `random` draws one.
"""

import os
import random

_GIVEN = os.environ.get("XQL_FFI_TEST_SEED", "2026")
SEED = random.SystemRandom().randrange(2**32) if _GIVEN == "random" else int(_GIVEN)
# Processes that run a part of the tests each draw no other one.
os.environ["XQL_FFI_TEST_SEED"] = str(SEED)
