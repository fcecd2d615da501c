"""What all tests share: settings, and whether there is a C library."""

import pytest
from hypothesis import settings

# No test judges a time: these machines are shared and noisy.
settings.register_profile("lumen", deadline=None)
settings.load_profile("lumen")


@pytest.fixture(scope="session")
def c_library() -> None:
    """Skips the test where the C library has not been built."""
    from lumen_uring.errors import LibraryError
    from lumen_uring.ring import library

    try:
        library.find()  # not loaded here: a sanitizer's variant would need its runtime first
    except LibraryError as error:
        pytest.skip(f"the C library is not there: {error}")
