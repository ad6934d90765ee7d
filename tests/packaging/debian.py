"""A minimal Debian as a tar file, for the tests that need a whole system: the package's and the images'."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import tempfile

from processes import PROJECT

TARGET = PROJECT / "target"
# What slim images leave out, and what apt fetched.
LEFT_OUT = ["usr/share/doc", "usr/share/man", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists"]


def run(*command, **options):
    """Runs a command, which must succeed; returns what it prints."""
    command = [str(word) for word in command]
    ran = subprocess.run(command, **{"capture_output": True, "text": True, "timeout": 600} | options)
    assert ran.returncode == 0, f"{command}: {ran.stdout}\n{ran.stderr}"
    return ran.stdout


def minimal_debian():
    """Path of the tar file. It is made by debootstrap, as root, and kept for the next run."""
    TARGET.mkdir(exist_ok=True)
    made = TARGET / "tests-debian.tar"
    with (TARGET / "tests-debian.lock").open("w") as lock:
        # Test files that run side by side share it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            assert os.geteuid() == 0, "only root can make a Debian in a folder"
            with tempfile.TemporaryDirectory(dir=TARGET, prefix="tests-debian-") as folder:
                make(pathlib.Path(folder) / "root", made)
    return made


def make(root, made):
    debootstrap = shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin")
    assert debootstrap, "debootstrap is missing; install it: apt-get install debootstrap"
    # Nothing of it has to outlive a crash of the machine.
    (root / "root").mkdir(parents=True)
    (root / "root/.dpkg.cfg").write_text("force-unsafe-io\n")
    run(debootstrap, "--variant=minbase", "bookworm", root, env=os.environ | {"HOME": "/root"})
    root.chmod(0o755)
    left_out = [f"--exclude=./{folder}/*" for folder in LEFT_OUT]
    part = made.with_suffix(".part")
    run("tar", "-C", root, "-c", "-f", part, *left_out, ".")
    part.rename(made)
