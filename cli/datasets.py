"""Text into a dataset in the bucket."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from cli.errors import Refused
from trainer import layout
from trainer.pack import PackError
from trainer.pack import pack as pack_text
from trainer.store import Store, open_store

STANDARD_LIBRARY = "python-stdlib"
"""The dataset that needs no download: the sources of Python's standard library."""

NOT_PROSE = ("test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__", "pydoc_data", "lib2to3")
"""Left out of it: tests and generated tables, more than half of the files and little to learn from."""

UPLOADS = 8


def pack_standard_library(home: Path) -> Path:
    """Pack the sources of the standard library of the Python that runs this. Returns the folder."""
    return pack([Path(sysconfig.get_path("stdlib"))], STANDARD_LIBRARY, home, NOT_PROSE)


def pack(paths: Sequence[Path], name: str, home: Path, exclude: Sequence[str] = ()) -> Path:
    """Pack text into shards in the local folder. Returns the dataset's folder. Raises `Refused`."""
    folder = home / "datasets" / name
    try:
        pack_text(paths, folder, name, exclude=exclude)
    except (PackError, OSError) as error:
        raise Refused(str(error)) from None
    return folder


def upload(folder: Path, bucket: Store, console: Console) -> None:
    """Put a packed dataset into the bucket, its index last, since the index makes it count."""
    store = open_store(bucket.url(layout.dataset_prefix(folder.name)))
    shards = sorted(folder.glob("shard-*.bin"))
    with ThreadPoolExecutor(UPLOADS) as pool:
        list(pool.map(lambda shard: store.upload(shard, shard.name), shards))
    store.upload(folder / "index.json", "index.json")
    size = sum(shard.stat().st_size for shard in shards)
    console.print(f"dataset {folder.name}: {size / 1e6:.0f} MB in {len(shards)} shards at {store.url()}", markup=False)
