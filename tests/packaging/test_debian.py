"""The Debian package: what is in it, that it installs, and that what it installs starts.

The package is made from the binary under test by config/debian/build, installed in a folder with a Debian of its
own (debootstrap, as root), and the server is started there as a user without rights. systemd verifies the unit
without running it.
"""

import gzip
import os
import pathlib
import re
import shutil
import subprocess
import tomllib
import urllib.request

import pytest

from debian import minimal_debian, run
from package import CONFIG, check_documents, umbo
from processes import PROJECT, binary, wait_until

DEBIAN = CONFIG / "debian"
UNIT = DEBIAN / "umbo.service"
PROFILES = {"debug": "dev", "release": "release"}
NOBODY = 65534


def found(tool, install):
    path = shutil.which(tool, path=f"{os.environ['PATH']}:{pathlib.Path.home()}/.cargo/bin:/usr/sbin")
    if path is None:
        pytest.skip(f"{tool} is missing; install it: {install}")
    return path


@pytest.fixture(scope="module")
def package():
    """The package, of the binary under test."""
    cargo_deb = found("cargo-deb", "cargo install --locked cargo-deb")
    found("dpkg-deb", "apt-get install dpkg")
    folder = pathlib.Path(binary()).resolve().parent
    profile = PROFILES.get(folder.name)
    if profile is None:
        pytest.skip("the binary under test was not built here")
    path = f"{pathlib.Path(cargo_deb).parent}:{os.environ['PATH']}"
    # Not built once more: that would put another binary in the place of the one under test.
    environment = {"PATH": path, "NO_BUILD": "1", "CARGO_TARGET_DIR": str(folder.parent)}
    made = run(DEBIAN / "build", profile, env=os.environ | environment)
    return pathlib.Path(made.strip().splitlines()[-1])


def dpkg(root, *arguments):
    path = {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    run("dpkg", f"--root={root}", "--force-unsafe-io", *arguments, env=os.environ | path)


@pytest.fixture(scope="module")
def system(package):
    """A folder with a Debian in which the package is installed. The Debian is kept for the next run."""
    assert os.geteuid() == 0, "only root can make a Debian in a folder"
    root = PROJECT / "target/tests-debian"
    done = root / "complete"
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        run("tar", "-C", root, "-x", "-f", minimal_debian())
        done.touch()
    shutil.rmtree(root / "var/lib/umbo", ignore_errors=True)
    dpkg(root, "--purge", "umbo")
    dpkg(root, "--install", package)
    yield root
    dpkg(root, "--purge", "umbo")


def settings():
    return (CONFIG / "debian/umbo.toml").read_text()


def unit_text():
    return UNIT.read_text()


def test_systemd_takes_the_unit(tmp_path):
    analyze = found("systemd-analyze", "apt-get install systemd")
    # It looks for the programs on this machine, where the package is not installed.
    unit = tmp_path / "umbo.service"
    unit.write_text(unit_text().replace("/usr/bin/umbo", binary()))
    verified = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    assert (verified.returncode, verified.stderr) == (0, ""), verified
    unit.write_text(unit.read_text().replace("Restart=on-failure", "Restart=sometimes"))
    refused = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    assert "restart specifier" in refused.stderr, "a mistake would be noticed"


def test_the_service_may_do_little():
    analyze = found("systemd-analyze", "apt-get install systemd")
    said = run(analyze, "security", "--offline=true", UNIT)
    (exposure,) = re.findall(r"Overall exposure level for umbo.service: ([\d.]+)", said)
    assert float(exposure) <= 2.0, said


def test_the_unit_and_the_settings_fit_each_other(tmp_path):
    folder = tomllib.loads(settings())["store"]["folder"]
    for line in (f"WorkingDirectory={folder}", f"StateDirectory={pathlib.Path(folder).name}", "DynamicUser=yes"):
        assert line in unit_text().splitlines()
    (command,) = re.findall(r"^ExecStart=/usr/bin/umbo (.*)$", unit_text(), re.M)
    role, flag, file = command.split()
    assert flag in umbo(role, "--help").stdout and file == "/etc/umbo/umbo.toml"
    (tmp_path / "umbo.toml").write_text(settings())
    checked = umbo("config", "check", str(tmp_path / "umbo.toml"))
    assert checked.returncode == 0 and "127.0.0.1:8080" in checked.stdout, checked
    shown = umbo("config", "show", "--config", str(tmp_path / "umbo.toml"), "-o", "json")
    assert shown.returncode == 0, shown
    # What a stop takes, by the defaults of the settings.
    values = tomllib.loads((CONFIG / "umbo.toml").read_text())["server"]
    ends = sum(float(values[key].removesuffix("s")) for key in ("drain_delay", "drain_timeout"))
    (given,) = re.findall(r"^TimeoutStopSec=(\d+)s$", unit_text(), re.M)
    assert float(given) > ends


def test_every_command_has_a_page(tmp_path):
    assert umbo("man", str(tmp_path)).returncode == 0
    every = sorted(tmp_path.iterdir())
    pages = {page.name for page in every}
    assert {"umbo.1", "umbo-serve.1", "umbo-kv-import.1", "umbo-status.1", "umbo-doctor.1"} <= pages
    assert not any("help" in page for page in pages)
    # Once for all of them, as man runs it, because a start takes longer than a page.
    shown = shown_by(found("groff", "apt-get install groff-base"), "-K", "utf8", "-ww", "-man", "-T", "utf8", *every)
    assert shown.count("Examples:") == len(every)
    assert all("Examples:" in page.read_text() for page in every)
    assert "Examples:" in shown_by(found("man", "apt-get install man-db"), "--warnings", "-l", every[0])


def shown_by(*command):
    """What a command shows of pages in which it finds nothing wrong."""
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    shown = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert shown.returncode == 0 and not shown.stderr, shown.stderr
    return shown.stdout


def test_the_package_has_what_it_should(package, tmp_path):
    run("dpkg-deb", "--extract", package, tmp_path)
    assert run(tmp_path / "usr/bin/umbo", "version") == umbo("version").stdout
    assert (tmp_path / "etc/umbo/umbo.toml").read_text() == settings()
    assert (tmp_path / "usr/lib/systemd/system/umbo.service").read_text() == unit_text()
    with gzip.open(tmp_path / "usr/share/man/man1/umbo.1.gz", "rt") as page:
        assert ".TH umbo 1" in page.read()
    assert "umbo" in (tmp_path / "usr/share/bash-completion/completions/umbo").read_text()
    check_documents(tmp_path / "usr/share/doc/umbo")
    for file in (UNIT, DEBIAN / "umbo.toml"):
        (named,) = re.findall(r"/(usr/share/doc/umbo/[\w./]+\w)", file.read_text())
        assert (tmp_path / named).is_file()
    assert run("dpkg-deb", "--field", package, "Depends").startswith("libc6")
    run("dpkg-deb", "--control", package, tmp_path / "control")
    assert (tmp_path / "control/conffiles").read_text().split() == ["/etc/umbo/umbo.toml"]


def test_what_is_installed_has_nothing_for_debuggers():
    """The profile of the package and of `cargo install`; the binary under test is of another one."""
    profile = tomllib.loads((PROJECT / "Cargo.toml").read_text())["profile"]["release"]
    assert profile["strip"] == "symbols" and "debug" not in profile


def test_it_installs_and_starts(system):
    assert "install ok installed" in run("dpkg-query", f"--admindir={system}/var/lib/dpkg", "--status", "umbo")
    wanted = system / "etc/systemd/system/multi-user.target.wants/umbo.service"
    assert os.readlink(wanted) == "/lib/systemd/system/umbo.service"
    # What systemd does with DynamicUser and StateDirectory.
    data = system / "var/lib/umbo"
    data.mkdir(mode=0o700)
    os.chown(data, NOBODY, NOBODY)
    command = ["chroot", f"--userspec={NOBODY}:{NOBODY}", system, "/usr/bin/umbo", "serve", "--config", "/etc/umbo/umbo.toml"]
    # Another server may have the port of the settings.
    free = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
    log = system / "server.log"
    with log.open("w") as stderr:
        server = subprocess.Popen(["/usr/sbin/" + command[0], *command[1:], *free], stderr=stderr, env={"LC_ALL": "C"})
    try:
        url = wait_until(lambda: re.search(r'"data":"(http://127[^"]*)"', log.read_text()), "it serves").group(1)
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
            assert answer.status == 200
        assert umbo("ns", "create", "demo", "--server", url).returncode == 0
        assert umbo("kv", "put", "demo", "user-7", "name", "Ada", "--server", url).returncode == 0
        assert umbo("kv", "get", "demo", "user-7", "name", "--server", url).stdout == "Ada"
        assert (data / "shard-000.redb").stat().st_uid == NOBODY
    finally:
        server.terminate()
        assert server.wait(60) == 0, log.read_text()
    dpkg(system, "--remove", "umbo")
    assert not (system / "usr/bin/umbo").exists()
    assert (system / "etc/umbo/umbo.toml").exists() and (data / "shard-000.redb").exists()
