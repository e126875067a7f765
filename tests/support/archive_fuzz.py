"""Archives that no `export` made, and a process that imports them one by one and measures what each takes.

`python -m lr_sweep.tests.support.archive_fuzz FOLDER ARCHIVE...` prints a line of JSON for each archive.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import resource
import shutil
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lr_sweep.common.errors import UserError
from lr_sweep.sweep.archive.format import Entry, manifest_text
from lr_sweep.sweep.archive.importer import import_archive
from lr_sweep.sweep.results.directory import Results

MOST_VIRTUAL = 8 << 30
"""Bytes that the process may take: a case that takes all must not end the others on the machine."""

Members = dict[str, bytes]
Spoil = Callable[[random.Random, Members], bytes]


def imported(folder: Path, archives: list[Path]) -> list[dict[str, Any]]:
    """Import each archive into an empty directory, in one process; return what became of it.

    `outcome` is `taken`, `refused` or a traceback, `message` the reason, `seconds` (of CPU time) and `peak_mb` what it
    took; the peak is that of the process so far.
    """
    command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, str(folder), *map(str, archives)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def spoiled(number: int, sound: Members) -> tuple[str, bytes]:
    """Return the name of a kind of damage, and an archive with it; equal numbers make equal archives."""
    dice = random.Random(number)
    kinds: dict[str, Spoil] = {
        **{"cut": _cut, "flips": _flips, "members": _members, "content": _content, "json": _json, "pax": _pax},
        **{"header": _header, "manifest": _manifest, "link": _link, "size": _size, "tensors": _tensors},
    }
    kind = list(kinds)[number % len(kinds)]
    return kind, kinds[kind](dice, dict(sound))


def tar_of(members: Mapping[str, bytes], manifest: bytes | None = None, before: bytes = b"") -> bytes:
    """Return a tar of members behind a manifest that fits them, or another one; `before` precedes all."""
    entries = {name: Entry.of(io.BytesIO(content)) for name, content in members.items()}
    text = manifest_text(entries).encode() if manifest is None else manifest
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in {"manifest.json": text, **members}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return before + sink.getvalue()


def header(name: str, size: int, kind: bytes) -> bytes:
    """Return a member's header, with no content behind it."""
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def _cut(dice: random.Random, sound: Members) -> bytes:
    whole = tar_of(sound)
    return whole[: dice.randrange(len(whole))]


def _flips(dice: random.Random, sound: Members) -> bytes:
    whole = bytearray(tar_of(sound))
    for _ in range(dice.choice((1, 1, 10, 1000))):
        whole[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
    return bytes(whole)


def _members(dice: random.Random, sound: Members) -> bytes:
    """Contents that change places, are missing, or have another name."""
    names = list(sound)
    one, other = dice.sample(names, 2)
    sound[one], sound[other] = sound[other], sound[one]
    if dice.random() < 0.5:
        del sound[dice.choice(names)]
    if dice.random() < 0.5:
        sound[dice.choice(("../x", "/etc/x", "runs/../x", "x" * 300, "studies/a/a.yaml", "\udcff", "ü\n"))] = b"x"
    return tar_of(sound)


def _content(dice: random.Random, sound: Members) -> bytes:
    """A file that is damaged, in an archive that fits it."""
    name = dice.choice(list(sound))
    content = bytearray(sound[name])
    for _ in range(dice.choice((1, 3, 30))):
        content[dice.randrange(len(content))] = dice.randrange(256)
    sound[name] = bytes(content[: dice.choice((None, len(content) // 2, 0))])
    return tar_of(sound)


def _nested(dice: random.Random, size: int) -> bytes:
    text = dice.choice((b"[" * size, b"[" + b"[]," * (size // 3) + b"[]]", b'{"a":' * (size // 5), b"9" * size))
    return text if dice.random() < 0.5 else b'{"study": "first", "title": ' + text + b"}"


def _json(dice: random.Random, sound: Members) -> bytes:
    name = dice.choice([name for name in sound if name.endswith((".json", ".yaml"))])
    sound[name] = _nested(dice, dice.choice((10, 10_000, 900_000)))
    return tar_of(sound)


def _pax(dice: random.Random, sound: Members) -> bytes:
    """Extended headers: long, many within each other, with numbers that are none, of sparse files."""
    keys = ("path", "size", "GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.major", "hdrcharset", "linkpath", "mtime")
    values = ("1,2,3", "-1", "9" * 30, "x", "BINARY", "runs/0123456789abcdef.parquet", "\udcff")
    found = b""
    for _ in range(dice.choice((1, 5, 2000))):
        record = f" {dice.choice(keys)}={dice.choice(values)}\n".encode(errors="surrogateescape")
        text = str(len(record) + dice.choice((2, 3, 0))).encode() + record
        kind = dice.choice((tarfile.XHDTYPE, tarfile.XGLTYPE))
        found += header("pax", len(text), kind) + text.ljust(512, b"\0")
    return tar_of(sound, before=found)


def _header(dice: random.Random, sound: Members) -> bytes:
    """A header that says it is as long as it likes."""
    kind = dice.choice((tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.GNUTYPE_SPARSE))
    size = dice.choice((1 << 16, 1 << 30, 1 << 40, 1 << 62))
    return tar_of(sound, before=header("long", size, kind) + b"x" * dice.choice((0, 512, 1 << 20)))


def _manifest(dice: random.Random, sound: Members) -> bytes:
    text = manifest_text({name: Entry.of(io.BytesIO(content)) for name, content in sound.items()})
    document = json.loads(text)
    name = dice.choice(list(sound))
    bad = dice.choice((None, [], {}, "x", -1, 1 << 70, {"sha256": [[[]]], "bytes": 1}, {"sha256": "0" * 64}))
    document["files"] |= {name: bad}
    texts = [json.dumps(document, separators=(",", ":")), json.dumps(document), text.replace("{", "[", 1), text + text]
    texts.append(text.replace('"files":', dice.choice(('"files":[', '"a":[[1]],"files":', '"files":{},"files":'))))
    return tar_of(
        sound, dice.choice([*(each.encode() for each in texts), _nested(dice, dice.choice((100, 3_000_000)))])
    )


def _link(dice: random.Random, sound: Members) -> bytes:
    whole = tar_of(sound)
    name = dice.choice([*sound, "manifest.json"]).encode()
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CONTTYPE)
    start = whole.index(name.ljust(100, b"\0"))
    block = bytearray(whole[start : start + 512])
    block[156:157], block[157:168] = dice.choice(kinds), b"/etc/passwd"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return whole[:start] + bytes(block) + whole[start + 512 :]


def _size(dice: random.Random, sound: Members) -> bytes:
    """A member that says that it is larger, or smaller, than it is."""
    whole = tar_of(sound)
    start = whole.index(dice.choice([*sound, "manifest.json"]).encode().ljust(100, b"\0"))
    block = bytearray(whole[start : start + 512])
    block[124:136] = dice.choice((b"77777777777\0", b"00000000000\0", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"x" * 12))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return whole[:start] + bytes(block) + whole[start + 512 :]


def _tensors(dice: random.Random, sound: Members) -> bytes:
    """A checkpoint with any header, and a name that fits."""
    folder = next(name for name in sound if name.startswith("checkpoints/")).rpartition("/")[0]
    sound = {name: content for name, content in sound.items() if not name.startswith("checkpoints/")}
    progress = dice.choice(('{"step": 30}', '{"step": 30, "a": ' + "[" * 100_000, "x", '{"step": "30"}', "{}", "[[]]"))
    text = dice.choice((json.dumps({"__metadata__": {"progress": progress}}), progress)).encode()
    size = dice.choice((len(text), len(text) + 1, 1 << 40, (1 << 64) - 1, 0))
    content = size.to_bytes(8, "little") + text
    sound[f"{folder}/step-000000030-{hashlib.sha256(content).hexdigest()[:16]}.safetensors"] = content
    return tar_of(sound)


def _report(archive: Path, into: Path) -> dict[str, Any]:
    began, message = time.process_time(), ""
    try:
        import_archive(archive, Results(into))
        outcome = "taken"
    except UserError as error:
        outcome, message = "refused", str(error)
    except BaseException:
        outcome = traceback.format_exc()[-2000:]
    seconds = time.process_time() - began
    shutil.rmtree(into, ignore_errors=True)
    return {"name": archive.name, "outcome": outcome, "message": message, "seconds": seconds, "peak_mb": _peak_mb()}


def _peak_mb() -> float:
    """Return the most memory that this process had; `ru_maxrss` would count that of the process which started it."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_VIRTUAL, MOST_VIRTUAL))
    for each in sys.argv[2:]:
        print(json.dumps(_report(Path(each), Path(sys.argv[1]) / "into")), flush=True)
