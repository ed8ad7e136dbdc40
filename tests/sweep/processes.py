"""Processes of this machine and where they listen, as Linux's /proc says."""

import ipaddress
import sys
from pathlib import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def children(pid: int) -> list[int]:
    """Every process that this one started, and those that they started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in map(int, _text(task / "children").split()):
            found += [child, *children(child)]
    return found


def named(pids: list[int], name: str) -> list[int]:
    """Those of them with this name."""
    return [pid for pid in pids if _text(Path(f"/proc/{pid}/comm")).strip() == name]


def in_session(session: int) -> list[int]:
    """Processes of a session that have not ended, also those whose parent has."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        words = _text(file).rpartition(")")[2].split()  # state, parent, group, session, ...
        if words and int(words[3]) == session and words[0] not in "ZX":
            found.append(int(file.parent.name))
    return found


def listening(pids: list[int]) -> dict[str, set[Address]]:
    """The addresses on which these processes accept TCP connections, by the name of the process."""
    sockets = _listening_sockets()
    found: dict[str, set[Address]] = {}
    for pid in pids:
        name = _text(Path(f"/proc/{pid}/comm")).strip()
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                target = str(file.readlink())
            except OSError:  # closed meanwhile
                continue
            inode = target.removeprefix("socket:[").removesuffix("]")
            if target.startswith("socket:[") and inode in sockets:
                found.setdefault(name, set()).add(sockets[inode])
    return found


def _listening_sockets() -> dict[str, Address]:
    """Addresses by inode. A row: number, local address and port in hexadecimal, remote, state (0A: listens), ..."""
    found: dict[str, Address] = {}
    for file in ("tcp", "tcp6"):
        for row in _text(Path("/proc/net") / file).splitlines()[1:]:
            words = row.split()
            if words[3] == "0A":
                found[words[9]] = address_of(words[1].partition(":")[0])
    return found


def address_of(text: str) -> Address:
    """An address as /proc/net writes it: words of four bytes, each in this machine's byte order."""
    data = bytes.fromhex(text)
    if sys.byteorder == "little":
        data = b"".join(data[i : i + 4][::-1] for i in range(0, len(data), 4))
    address = ipaddress.ip_address(data)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has ended
        return ""
