"""Packs a folder as a wheel, with the list of its files and their hashes. Usage: wheel.py FOLDER WHEEL"""

import base64
import hashlib
import pathlib
import sys
import zipfile

folder, wheel = map(pathlib.Path, sys.argv[1:])
(information,) = (path.name for path in folder.glob("*.dist-info"))
with zipfile.ZipFile(wheel, "w") as archive:

    def add(name, contents, mode):
        # The date of a new entry is always the same, so equal files give equal wheels.
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, contents, zipfile.ZIP_DEFLATED)

    record = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, contents = file.relative_to(folder).as_posix(), file.read_bytes()
        add(name, contents, file.stat().st_mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(contents)}\n")
    name = f"{information}/RECORD"
    add(name, "".join(record) + f"{name},,\n", 0o100644)
