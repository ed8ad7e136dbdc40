"""What the tests of sweeps read from /proc: a check of addresses that could not fail would be worth nothing."""

import ipaddress
import os
import socket

import pytest

from tests.sweep.processes import listening


@pytest.mark.parametrize(
    ("address", "found_as", "loopback"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("0.0.0.0", "0.0.0.0", False),
        ("::1", "::1", True),
        ("::", "::", False),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
    ],
)
def test_sockets_that_listen_are_found_with_their_address(address, found_as, loopback):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as mine:
        try:
            mine.bind((address, 0))
        except OSError as error:
            pytest.skip(f"this machine has no {address}: {error}")
        mine.listen(1)
        found = listening([os.getpid()])
    (expected,) = (each for each in set().union(*found.values()) if each == ipaddress.ip_address(found_as))
    assert expected.is_loopback is loopback
