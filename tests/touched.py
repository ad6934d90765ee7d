"""Prints which tests a change touches, as settings of tests/run: `touched.py REV AREA_OF_BOTH…`.

A change is all that differs from a revision, with what is not committed. It touches the crates whose files it has,
those that use them, and the areas that areas.toml names for the former; a file of an area touches the area, and one
that areas share touches all of them.
"""

import json
import pathlib
import shlex
import subprocess
import sys
import tomllib

# Enough to see that a world still runs; the full number runs before a change lands.
SEEDS = 30
# Files outside of crates and areas whose rules are tests of an area.
BY_PACKAGING = ("config", "README.md", "Dockerfile", "docker-compose.yml", ".dockerignore")
OF_ALL_CRATES = ("Cargo.toml", "Cargo.lock", ".cargo", ".clippy.toml")
SIMULATION = "umbo-simulation"


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


def packages():
    """Packages of the workspace: their folder, and those of them they use in the product and in tests."""
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    root, found = pathlib.Path(said["workspace_root"]), {}
    names = {package["name"] for package in said["packages"]}
    for package in said["packages"]:
        uses = [(one["name"], one["kind"]) for one in package["dependencies"] if one["name"] in names]
        product = {name for name, kind in uses if kind != "dev"}
        folder = pathlib.Path(package["manifest_path"]).parent.relative_to(root)
        found[package["name"]] = (folder, product, {name for name, _ in uses})
    return found


def with_users(touched, found):
    """The touched packages and all whose product or tests use them."""
    product = set(touched)
    while more := {name for name, (_, uses, _) in found.items() if uses & product} - product:
        product |= more
    return product | {name for name, (_, _, uses) in found.items() if uses & product}


def touched_by(changed, found, areas):
    """Packages and areas of changed files, before those that use them."""
    crates, its_areas = set(), set()
    by_crate = tomllib.loads(pathlib.Path("tests/areas.toml").read_text())
    for path in map(pathlib.PurePosixPath, changed):
        owners = [(len(folder.parts), name) for name, (folder, _, _) in found.items() if path.is_relative_to(folder)]
        owner = max(owners)[1] if owners else None
        if path.parts[0] in OF_ALL_CRATES:
            crates |= found.keys()
        elif path.parts[0] == "tests" and path.suffix != ".rs":
            is_shared = len(path.parts) == 2 and path.suffix in (".py", ".c")
            its_areas |= areas if is_shared else {path.parts[1]} & areas
        elif owner:
            crates.add(owner)
            its_areas |= set(by_crate.get(owner, []))
        elif path.parts[0] in BY_PACKAGING:
            its_areas.add("packaging")
    return crates, its_areas


def main(revision, of_both):
    changed = git("diff", "--name-only", revision) + git("ls-files", "--others", "--exclude-standard")
    found = packages()
    areas = {path.parent.name for path in pathlib.Path("tests").glob("*/test_*.py")}
    touched, its_areas = touched_by(changed, found, areas)
    # The rules of the house are about every file.
    crates = sorted(with_users(touched, found) | {"umbo-tests"})
    folders = [f"tests/{area}" for area in sorted(its_areas)]
    print("crates=(" + shlex.join(str(found[name][0]) for name in crates) + ")")
    print("areas=(" + shlex.join(folders) + ")")
    print("clustered=(" + shlex.join(folder for folder in folders if folder.split("/")[1] in of_both) + ")")
    print(f"seeds={SEEDS if SIMULATION in crates else 0}")
    print(f"echo {shlex.quote(f'changed: {len(changed)} files; crates: {len(crates)}; areas: ' + ', '.join(sorted(its_areas)))}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
