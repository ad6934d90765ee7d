"""Fixtures of the area."""

import pytest

from crowd import TIGHT


@pytest.fixture
def tight(new_server):
    """A server whose shards have two permits each."""
    server = new_server(TIGHT).start()
    server.namespace()
    return server
