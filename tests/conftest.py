"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chestfed.core.pseudonyms import VARIABLE, make_key


@pytest.fixture(autouse=True, scope="session")
def _key_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor make the user's own key."""
    file = tmp_path_factory.mktemp("key") / "key"
    make_key(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(file))
        yield
